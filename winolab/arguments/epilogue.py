"""What is done to y as it is stored: bias, residual and activation, as a caller names them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from winolab.arguments.values import nearest

KINDS = ("relu", "leaky_relu", "silu")
SLOPE = 0.01  # of leaky_relu where none is given, PyTorch's


@dataclass(frozen=True)
class Activation:
    """relu, leaky_relu with its slope for negative numbers, or silu."""

    kind: str
    slope: float = 0.0

    @classmethod
    def of(cls, value: Any) -> Activation | None:
        """Read "relu", "silu", "leaky_relu" or "leaky_relu:0.2".

        Raises TypeError for what is no text, ValueError for other names and slopes.

        >>> Activation.of("leaky_relu:0.2")
        Activation(kind='leaky_relu', slope=0.2)
        """
        if value is None or isinstance(value, Activation):
            return value
        if not isinstance(value, str):
            raise TypeError(f"activation is {value!r}; expected a name, such as 'relu', or None")
        kind, colon, text = value.partition(":")
        if kind not in KINDS:
            near = nearest(kind, KINDS)
            hint = f"; did you mean {near!r}?" if near else ""
            raise ValueError(f"activation {value!r}; expected one of {', '.join(KINDS)}{hint}")
        if colon and kind != "leaky_relu":
            raise ValueError(f"activation {value!r}: {kind} has no slope; leave it out")
        try:
            slope = float(text) if colon else SLOPE
        except ValueError:
            slope = math.nan
        if not math.isfinite(slope):
            raise ValueError(f"activation {value!r}; expected a number, as in 'leaky_relu:0.2'")
        return cls(kind, slope if kind == "leaky_relu" else 0.0)

    def __str__(self) -> str:
        return f"{self.kind}:{self.slope!r}" if self.kind == "leaky_relu" else self.kind


@dataclass(frozen=True)
class Epilogue:
    """What is done, in this order; kernels are compiled for it, whatever the arrays hold."""

    bias: bool = False
    residual: bool = False
    activation: Activation | None = None

    def __bool__(self) -> bool:
        return self.bias or self.residual or self.activation is not None


def check_shapes(
    bias: tuple[int, ...] | None,
    residual: tuple[int, ...] | None,
    y: tuple[int, ...],
    channels: int,
) -> None:
    """Raise ValueError for a bias or a residual that does not fit y, of ``channels``."""
    if bias is not None and bias != (channels,):
        raise ValueError(f"bias has shape {bias}; expected ({channels},), one an output channel")
    if residual is not None and residual != y:
        raise ValueError(f"residual has shape {residual}; expected y's, {y}")


def check_dtype(name: str, dtype: str, wanted: str) -> None:
    """Raise TypeError for a bias or a residual of another dtype than y's."""
    if dtype != wanted:
        raise TypeError(f"{name} has dtype {dtype} and y {wanted}; convert it")
