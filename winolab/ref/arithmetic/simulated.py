"""Arithmetics that one text of an algorithm runs in: exact, mpmath, and simulated floating point.

An Arithmetic is a hashable value. Its carriers are arrays: object arrays of int and Fraction
(exact), object arrays of mpf (mpmath), float64 where a format is FP64, and float32 for everything
narrower (every value of TF32, BF16, FP16 and FP8 is an FP32 value).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from winolab.algorithm import Algorithm
from winolab.arguments.arrays import precision_named
from winolab.arguments.values import counted, whole
from winolab.points import shortened
from winolab.ref.arithmetic import accumulate as sums
from winolab.ref.arithmetic import split, tensor_cores
from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.eft import fma64
from winolab.ref.arithmetic.elements import reals
from winolab.ref.arithmetic.exact import Arithmetic, Carrier, Exact, Mp
from winolab.ref.arithmetic.formats import FORMATS, Format, format_named, nearest_name
from winolab.ref.arithmetic.loops import compiled
from winolab.ref.arithmetic.split import HEADROOM, Power, Scale
from winolab.ref.quantized import residues, scales

__all__ = ["PRESETS", "Arithmetic", "Exact", "Float", "Mp", "arithmetic", "summed"]


@dataclass(frozen=True)
class Float(Arithmetic):
    """Simulated floating point.

    storage: inputs are rounded to it. transform: format of add, sub, mul, fma and of constants.
    product: operands of a matrix product are rounded to it. accumulate: format of its sums, in the
    order that accumulation gives. fused: whether a multiplication and an addition round once.
    parts: numbers of the product format that an operand is split into, scale: how the tensors
    are scaled for them, ahead: groups of products that lower parts precede higher ones by
    (winolab.ref.arithmetic.split). filters: format of the filter's transform, if it is not that of
    the others. sums: format that sums of products are stored in, before they are transformed back,
    if it is not that of the transforms. outputs: format of the output transform, if it is not that
    of the others.

    Accumulating in fp64 is NumPy's own matrix product, of unspecified order.
    """

    storage: Format
    transform: Format
    product: Format
    accumulate: Format
    accumulation: Accumulation
    fused: bool = True
    parts: int = 1
    scale: Scale | None = None
    ahead: int = 0
    filters: Format | None = None
    sums: Format | None = None
    outputs: Format | None = None

    def __post_init__(self) -> None:
        for name in ("parts", "ahead"):
            object.__setattr__(self, name, whole(getattr(self, name), name))
        if not 1 <= self.parts <= 3:
            raise ValueError(f"{self.parts} parts; expected 1 to 3")
        wide = self.accumulate.precision == 53
        if wide != (self.accumulation.kind == "unspecified"):
            raise ValueError(
                f"{self.accumulation} accumulation in {self.accumulate.name}; fp64 sums are "
                "'unspecified' (NumPy's order), all others must state their order"
            )
        if not wide and self.product.precision > 26:
            raise ValueError(
                f"{self.product.name} products summed in {self.accumulate.name}; expected a "
                "product format of at most 26 bits, or accumulate=fp64"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """dtype of the carriers."""
        wide = max(self.storage.precision, self.transform.precision) > 24
        return np.dtype(np.float64 if wide else np.float32)

    @property
    def name(self) -> str:
        def differences(base: Float) -> list[str]:
            return [
                f"{f.name}={_field_text(getattr(self, f.name))}"
                for f in fields(self)
                if getattr(self, f.name) != getattr(base, f.name)
            ]

        base, changed = min(
            ((k, differences(v)) for k, v in PRESETS.items()), key=lambda item: len(item[1])
        )
        return ",".join([base, *changed])

    def asarray(self, x: ArrayLike) -> Carrier:
        x = reals(x)
        if self.storage.name == "fp32" and x.dtype not in (np.float64, object):
            with np.errstate(all="ignore"):
                return x.astype(np.float32).astype(self.dtype, copy=False)
        return self.storage.nearest(x).astype(self.dtype)

    def constant(self, q: Fraction | int) -> Any:
        return self.dtype.type(self.transform.round_fraction(q))

    def to_float64(self, y: Carrier) -> NDArray[np.float64]:
        return np.asarray(y).astype(np.float64)

    @property
    def _native(self) -> bool:
        return self.dtype == (np.float64 if self.transform.precision == 53 else np.float32) and (
            self.transform.precision in (24, 53)
        )

    def _operate(self, ufunc: Any, a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            if self._native:
                return ufunc(a, b)
            # Two p-bit operands, p <= 25: rounding first to 53 bits changes nothing
            # (Figueroa 1995)
            wide = ufunc(np.asarray(a, np.float64), np.asarray(b, np.float64))
            return self._round(wide)

    def add(self, a: Any, b: Any) -> Any:
        return self._operate(np.add, a, b)

    def sub(self, a: Any, b: Any) -> Any:
        return self._operate(np.subtract, a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return self._operate(np.multiply, a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        if not self.fused:
            return self.add(self.mul(a, b), c)
        if self.transform.precision == 53:
            return fma64(*np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, c))))
        return sums.fma(a, b, c, self.transform, self.dtype)

    def _round(self, wide: NDArray[np.float64]) -> Carrier:
        with np.errstate(all="ignore"):
            if self.transform.name == "fp32":
                return wide.astype(np.float32, copy=False).astype(self.dtype, copy=False)
            return self.transform.round(wide).astype(self.dtype)

    @property
    def of_filters(self) -> Float:
        return replace(self, transform=self.filters, filters=None) if self.filters else self

    @property
    def of_outputs(self) -> Float:
        return replace(self, transform=self.outputs, outputs=None) if self.outputs else self

    @property
    def of_sums(self) -> Format:
        """The format that sums of products are stored in."""
        return self.sums or self.outputs or self.transform

    def of_data(self, a: Carrier, b: Carrier) -> Float:
        return replace(self, scale=self.scale.of_data(a, b)) if self.scale else self

    def exponents(self, gains: tuple[Fraction, Fraction]) -> tuple[int, int]:
        return self.scale.exponents(gains) if self.scale else (0, 0)

    def factor(self, x: Carrier) -> NDArray[Any]:
        """Rounded to the product format; FP32 numbers stay in their own type."""
        if x.dtype == np.float32 and self.product.name == self.accumulate.name == "fp32":
            return x
        narrow = self.product.precision <= 24 and x.dtype.type in (np.float32, np.float64)
        if narrow and (loops := compiled(0)):
            return loops.rounded(x, self.product)
        return self.product.round(np.asarray(x, np.float64))

    def matmul(self, a: Carrier, b: Carrier) -> Carrier:
        if self.parts > 1:
            a, b = (np.asarray(v, np.float64) for v in (a, b))
            with np.errstate(all="ignore"):  # infinity leaves no rest
                group = max(1, self.accumulation.block)
                each = group * split.products(self.parts)
                inside = [i // each for i in self.accumulation.intervals]
                a, b = split.expanded(a, b, self.product, self.parts, group, inside, self.ahead)
        else:
            a, b = (self.factor(v) for v in (a, b))
        if self.accumulate.precision == 53:
            with np.errstate(all="ignore"):
                y = np.matmul(a, b)
        else:
            y = self.summed_products(a, b)
        y = self.of_outputs._round(y)
        return self.sums.round(y).astype(self.dtype) if self.sums else y

    def summed_products(self, a: Carrier, b: Carrier) -> Carrier:
        """a (…, M, K) @ b (…, K, N), values of the product format, summed as ``accumulation``."""
        return sums.matmul(a, b, self.accumulation, self.product, self.accumulate, self.fused)


def _preset(storage: str, product: str, accumulate: str, accumulation: str) -> Float:
    transform = "fp64" if storage == "fp64" else "fp32"
    return Float(
        FORMATS[storage], FORMATS[transform], FORMATS[product], FORMATS[accumulate],
        Accumulation.parse(accumulation),
    )  # fmt: skip


# Tensor Cores are Ampere's where none is named: fp16 is fp16@ampere, bf16 is bf16@ampere; tf32 has
# Ampere's alignment over eight products, as a chunk of k = 8, where tf32@ampere has halves of four;
# fp32_split is fp32_split@hopper, on which its kernels run.
# Truncated sums of U[1, 2] products lose 1.2e-8 K (8 products, 1 extra bit), as the GEMM column of
# Im2col-Winograd's table 3 does (1.27e-8 K, Ampere and Ada). cuDNN's TF32 on an H100
# (1.59e-5, 2.08e-5, 6.69e-5 at K = 2304, 3200, 10368, of which 0.94, 0.93, 0.87 lie within the
# padded borders) is tf32@hopper, 7.4e-9 K. No extra bit gives 2.2e-8 K.
PRESETS = {
    "fp32": _preset("fp32", "fp32", "fp32", "sequential"),
    "fp64": _preset("fp64", "fp64", "fp64", "unspecified"),
    "tf32": _preset("fp32", "tf32", "fp32", "tensor_core:8:1:truncate"),
    "bf16": _preset("bf16", "bf16", "fp32", "tensor_core:8:1:truncate"),
    "fp16": _preset("fp16", "fp16", "fp32", "tensor_core:8:1:truncate"),
    "fp32_split": replace(
        _preset("fp32", "fp16", "fp32", "tensor_core:16:2:truncate:48"),
        parts=2, scale=Scale(Power("absmax", HEADROOM)),
    ),
}  # fmt: skip
# What GPUs compute on FFMA units: FP32 arithmetic, of numbers stored as the name says.
FFMA = {
    "fp32_ffma": "fp32",
    "fp16_ffma": "fp32,storage=fp16",
    "bf16_ffma": "fp32,storage=bf16",
}
ACCEPTED = ["exact", "mp:BITS", *PRESETS, *FFMA, "fp16@hopper"]
ACCEPTED += ["int8:state", "fp8_e4m3:state", "fp8_e5m2:state", "rns"]


def _field_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return value.name if isinstance(value, Format) else str(value)


def _mixed(text: str) -> Float:
    preset, *changes = text.split(",")
    name, at, architecture = preset.partition("@")
    if name not in PRESETS:
        raise ValueError(f"unknown precision {name!r}{nearest_name(name, ACCEPTED)}")
    values = {f.name: getattr(PRESETS[name], f.name) for f in fields(Float)}
    if at:
        values |= tensor_cores.named(name, architecture)
    given = set()
    for change in changes:
        key, _, value = change.partition("=")
        if key in given:
            raise ValueError(f"{text!r} gives {key} twice; give it once")
        given.add(key)
        if key not in values:
            raise ValueError(f"unknown field {change!r}{nearest_name(key, list(values))}")
        if key == "accumulation":
            values[key] = Accumulation.parse(value)
        elif key == "fused":
            if value not in ("yes", "no"):
                raise ValueError(f"field {change!r}; expected fused=yes or fused=no")
            values[key] = value == "yes"
        elif key == "scale":
            values[key] = Scale.parse(value)
        elif key in ("filters", "sums", "outputs") and value == "none":
            values[key] = None
        elif key in ("parts", "ahead"):
            if (number := counted(value)) is None:
                raise ValueError(f"field {shortened(change)!r}; expected an integer")
            values[key] = number
        else:
            values[key] = format_named(value)
    return Float(**values)


def summed(run: Arithmetic, algorithm: Algorithm) -> Arithmetic:
    """``run`` with two-level sums where the algorithm asks for them, and they are not exact.

    Raises ValueError where ``run`` does not sum in one level, in order.
    """
    if not algorithm.fold or not isinstance(run, Float) or run.accumulation.kind == "unspecified":
        return run
    if run.accumulation.kind != "sequential":
        raise ValueError(f"{algorithm} sums in two levels, {run} otherwise; use precision 'fp32'")
    return replace(run, accumulation=Accumulation("two_level", algorithm.fold))


def arithmetic(spec: str | Arithmetic) -> Arithmetic:
    """The arithmetic that a text names.

    "exact"; "mp:200" (200 bits); "fp64", "fp32", "tf32", "bf16", "fp16", "fp32_split"; or one of
    the last six with fields of Float changed: "fp32,storage=fp16", which is "fp16_ffma" (the FP16
    column of Lavin & Gray 2016, table 4: 16-bit data, 32-bit arithmetic; "bf16_ffma" is alike, and
    "fp32_ffma" the same as "fp32"), "fp32,accumulation=two_level:32",
    "fp32,fused=no", "fp32_split,product=bf16,parts=3,scale=none". "fp16@hopper" sums as that
    architecture's Tensor Cores do: ampere, ada, hopper or blackwell behind fp16, bf16 or tf32,
    whose bare names are Ampere's, or fp32_split, Hopper's; ``name`` spells it out. "int8:state" and
    "fp8_e4m3:channel" have scales (winolab.ref.quantized.scales), "rns" sums INT8 products exactly
    by residues. A dtype or its name, such as "float32", means the precision of its numbers. An
    Arithmetic is returned as it is. Raises ValueError, TypeError.
    """
    if isinstance(spec, Arithmetic):
        return spec
    spec = precision_named(spec)
    if not isinstance(spec, str):
        raise TypeError(
            f"precision is of type {type(spec).__name__}; expected a text such as 'fp32' or an "
            "Arithmetic"
        )
    text = spec.replace(" ", "")
    text = FFMA.get(text, text)
    if text == "exact":
        return Exact()
    if text.startswith("mp:"):
        if (bits := counted(text[3:])) is None:
            shown = shortened(spec)
            raise ValueError(f"precision {shown!r}; expected bits as an integer, such as 'mp:200'")
        return Mp(bits)
    return scales.parsed(text) or residues.parsed(text) or _mixed(text)
