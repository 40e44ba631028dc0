"""Filters that are made ready once, and what calls with them may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm, Problem, direct
from winolab.options import ConvOptions
from winolab.problem import in_layout
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.arithmetic.split import Power, Scale
from winolab.ref.operands import arithmetic_of

AGAIN = "prepare it so, or give the filter itself"


@dataclass(frozen=True, eq=False)
class PreparedFilter:
    """A filter made ready by ``prepare_filter``, accepted in its place for the same problem.

    On a GPU it holds device memory until it is deleted; NumPy's is a copy of the filter.
    """

    problem: Problem
    direction: str
    layout: str
    algorithm: Algorithm | None
    precision: Any
    scale: Scale | None
    held: Any  # NumPy's array, or the GPU's Transformed

    @property
    def shape(self) -> tuple[int, ...]:
        """The filter's, in its layout."""
        return in_layout(self.problem.w_shape, self.layout)

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        return self.held.nbytes


def scale_of(scale: Any, precision: str | Arithmetic | None, array: Any) -> Scale | None:
    """The scale that a caller gives, if any. Raises ValueError where the precision takes none."""
    if scale is None:
        return None
    text = str(getattr(precision, "name", precision or ""))
    name, _, rest = text.partition(",")
    dtype = getattr(array, "dtype", None) or np.asarray(array).dtype
    held = str(getattr(dtype, "name", dtype))  # NumPy's is that of any byte order
    if name not in ("", "fp32", "fp32_split") or not held.endswith("float32"):
        raise ValueError(
            f"precision {text or dtype} takes no scale: it serves split products of float32 "
            "arrays, which are those of fp32_split, and of fp32 on a GPU"
        )
    if "scale=" in rest:
        raise ValueError(f"precision {text} has a scale, and another one is given; leave one out")
    return Scale.of_caller(scale)


def check_filter(w: PreparedFilter, direction: str, problem: Problem, options: ConvOptions) -> None:
    """Raise ValueError where a call asks for something else than was prepared."""
    if options.tolerance:
        raise ValueError(
            f"tolerance {options.tolerance} and a prepared filter, whose algorithm is chosen; "
            "prepare it with the tolerance"
        )
    if (w.direction, w.layout) != (direction, options.layout):
        raise ValueError(
            f"the filter is prepared for {w.direction}, {w.layout}, not {direction}, "
            f"{options.layout}: {AGAIN}"
        )
    if w.problem != problem:
        raise ValueError(f"the filter is prepared for {w.problem}, not {problem}: {AGAIN}")
    for name in ("algorithm", "precision"):
        wanted = getattr(options, name)
        if wanted is None:
            continue
        meant, have = (_meant(name, value, w.held) for value in (wanted, getattr(w, name)))
        if meant != have:
            raise ValueError(f"the filter is prepared with {name} {have}, not {meant}: {AGAIN}")
    scale = scale_of(options.scale, w.precision, np.empty(0, "float32"))
    filters = [s.b if s else Power() for s in (scale, w.scale)]
    if filters[0] not in (Power(), filters[1]):
        raise ValueError(f"the filter is prepared with scale {w.scale}, not {scale}: {AGAIN}")


def _meant(name: str, value: Any, held: Any) -> Any:
    """What an algorithm or a precision of a call with the filter is, None being the usual one."""
    if not isinstance(held, np.ndarray):
        return held.meant(name, value)
    return arithmetic_of(value, held).name if name == "precision" else value or direct()
