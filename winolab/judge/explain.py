"""What is wrong with a result, in a sentence: where, how much, and what it looks like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from winolab.api.tolerance import Checked
from winolab.arguments.words import agreeing, plural
from winolab.judge.claim import Claim
from winolab.problem import Problem
from winolab.ref.algorithms import convolution

FEW = 0.9  # of results: those that are fewer are said where they are
LESS = (
    ("tf32", "TF32 products"),
    ("bf16", "BF16 products"),
    ("fp16", "FP16 products"),
    ("fp16,transform=fp16,accumulate=fp16", "sums in FP16"),
)
NAMES = ("image", "row", "column")


def described(claim: Claim, problem: Problem, operands: list, y: np.ndarray, found: Checked) -> str:
    """The sentence about a result, channels last, that a check refuses."""
    a, b = operands
    with np.errstate(all="ignore"):
        exact = _exact(claim, problem, a, b)
        value = y.astype(np.float64)
        limit = _limit(claim, problem, a, b, exact)
        wrong = ~(np.abs(value - exact) <= limit) & ~(value == exact) & ~(
            np.isnan(value) & np.isnan(exact))  # fmt: skip
    said = found.reason
    if found.at is not None and found.outside:
        at = found.at
        said += (
            f": {y[at]:.6g} at {at}, where {exact[at]:.6g} is exact"
            f" ({found.ratio:.2g} times the tolerance)"
        )
    if wrong.any() and wrong.mean() < FEW and (place := _place(wrong, problem)):
        said += f", {place}"
    if looks := _looks(claim, problem, a, b, value, found):
        said += f"; {looks}"
    return said


def finite(claim: Claim, problem: Problem, operands: list, y: np.ndarray) -> str:
    """Why results are refused of which each product overflows, or ""."""
    counts = getattr(convolution, claim.direction)(*(np.ones(v.shape) for v in operands), problem)
    direct = claim.algorithm == "direct" and claim.precision != "fp32_split"
    values = y.astype(np.float64)
    wrong = (counts > 0) & (values != np.inf if direct else np.isfinite(values))
    if not wrong.any():
        return ""
    at = tuple(map(int, np.argwhere(wrong)[0]))
    due = "infinite" if direct else "not finite"
    return (
        f"{wrong.sum()} of {plural(y.size, 'result')} of products beyond the range "
        f"{agreeing(wrong.sum(), 'is', 'are')} not {due}: {values[at]:.6g} at {at}"
    )


def _exact(claim: Claim, problem: Problem, a: Any, b: Any) -> np.ndarray:
    return getattr(convolution, claim.direction)(
        a.astype(np.float64), b.astype(np.float64), problem
    )


def _limit(claim: Claim, problem: Problem, a: Any, b: Any, exact: np.ndarray) -> Any:
    limits = claim.limits(problem, a, b)
    each = limits.predicted.atol if limits.limits is None else limits.limits
    return each + limits.predicted.rtol * np.abs(exact)


def _place(wrong: np.ndarray, problem: Problem) -> str:
    """Where wrong results lie, if that is a part of the result."""
    names = ["image", *(f"row {d}" for d in range(problem.ndim - 1)), "column", "channel"]
    if problem.ndim == 2:
        names[1] = "row"
    parts = []
    for axis, name in enumerate(names):
        others = tuple(d for d in range(wrong.ndim) if d != axis)
        (at,) = np.nonzero(wrong.any(axis=others))
        if len(at) < wrong.shape[axis]:
            last = at[-1] == wrong.shape[axis] - 1
            few = ", ".join(map(str, at)) if len(at) < 4 else f"{at[0]} to {at[-1]}"
            parts.append(f"{name} {few}{' (the last)' if last and len(at) == 1 else ''}")
    return "all in " + ", ".join(parts) if parts else ""


def _looks(claim: Claim, problem: Problem, a: Any, b: Any, y: np.ndarray, found: Checked) -> str:
    """What the result is instead, if it is that."""
    if not (np.isfinite(y).all() and np.isfinite(a.astype(float)).all() and
            np.isfinite(b.astype(float)).all()):  # fmt: skip
        return ""
    norm = np.linalg.norm(y)
    with np.errstate(all="ignore"):
        for name, p, first, second in _variants(claim, problem, a, b):
            try:
                other = _exact(claim, p, first, second)
            except (ValueError, IndexError):
                continue
            if other.shape == y.shape and np.linalg.norm(y - other) <= 4 * found.most * norm:
                return f"it is the result of {name}"
        for precision, name in LESS:
            if precision == claim.precision:
                continue
            try:
                expected = claim.expected(problem, precision, a, b)
            except ValueError:
                continue
            if expected > 3 * found.most and 0.4 < found.relative_rms / expected < 2.5:
                return (
                    f"relative RMS {found.relative_rms:.2g} is what {name} have "
                    f"({expected:.2g} predicted), not {claim.precision} ({found.most:.2g})"
                )
    if not norm:
        return "all results are 0"
    return f"relative RMS {found.relative_rms:.2g}, at most {found.most:.2g} expected"


def _variants(
    claim: Claim, p: Problem, a: np.ndarray, b: np.ndarray
) -> Iterator[tuple[str, Problem, np.ndarray, np.ndarray]]:
    """Mistakes that are often made, by name."""
    taps = tuple(range(1, 1 + p.ndim))
    if claim.direction != "backward_filter":
        yield "a filter reversed along all dimensions", p, a, np.flip(b, taps)
        if p.ndim > 1 and len(set(p.filter[-2:])) == 1:
            yield "a filter with rows and columns exchanged", p, a, b.swapaxes(-2, -3)
        if b.shape[0] == b.shape[-1]:
            yield "a filter with its channels exchanged", p, a, b.swapaxes(0, -1)
    every = [tuple(range(p.ndim)), *((d,) for d in range(p.ndim))]
    for moved in every[p.ndim == 1 :]:
        for step in (-1, 1):
            pads = [
                (lo + step, hi - step) if d in moved else (lo, hi)
                for d, (lo, hi) in enumerate(p.padding)
            ]
            if min(min(pair) for pair in pads) >= 0:
                yield (
                    f"padding {pads} in place of {[*p.padding]}",
                    replace(p, padding=(*pads,)),
                    a,
                    b,
                )
    with np.errstate(all="ignore"):
        tiny = np.finfo(np.float32).tiny
        flushed = [np.where(np.abs(v) < tiny, v.dtype.type(0), v) for v in (a, b)]
    yield "subnormal numbers flushed to 0", p, flushed[0], flushed[1]
