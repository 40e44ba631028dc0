"""PyTorch's own samples of its convolutions, and how far sums of their products may be off."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

import winolab.torch

NAMES = [f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)]
COMPLEX = [torch.complex128, torch.complex64]
REAL = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
DTYPES = [*REAL, torch.complex64]  # others are alike
ROUNDING = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}  # of sums
ROUNDING |= dict(zip(COMPLEX, ROUNDING.values(), strict=True))
STORED = {**ROUNDING, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@cache
def entry(name: str) -> Any:
    """PyTorch's entry of one of NAMES; its table takes seconds, which collecting tests need not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from torch.testing._internal.common_methods_invocations import op_db
        except ModuleNotFoundError as absent:
            wanted = f"PyTorch's samples import {absent.name}: python -m pip install {absent.name}"
            pytest.fail(wanted, pytrace=False)
    (found,) = (op for op in op_db if op.name == f"nn.functional.{name}")
    return found


def samples(name: str, dtype: Any, device: str = "cpu") -> Iterator[Any]:
    return entry(name).sample_inputs(device, dtype, requires_grad=False)


def ours(name: str) -> Any:
    return getattr(winolab.torch, name)


def theirs(name: str, *arguments: Any, **how: Any) -> Any:
    """PyTorch's result, without what it says of even filters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return getattr(torch.nn.functional, name)(*arguments, **how)


def exact_and_bound(name: str, input: Any, weight: Any, *rest: Any, **how: Any) -> tuple[Any, Any]:
    """The result in FP64, and what one of the tensors' dtype may be off: FP32 sums of fewer than
    ``terms`` products, each rounded, then the result's rounding and the bias's. A part of a complex
    result has twice as many, and there are two parts."""
    parts = 3 if input.is_complex() else 1  # at least twice the square root of 2

    def of(change: Any) -> Any:
        return lambda v: change(_wide(v)) if isinstance(v, torch.Tensor) else v

    plain, positive = of(lambda v: v), of(torch.abs)
    exact = theirs(
        name,
        plain(input),
        plain(weight),
        *map(plain, rest),
        **{k: plain(v) for k, v in how.items()},
    )
    sums = theirs(
        name,
        positive(input),
        positive(weight),
        *map(positive, rest),
        **{k: positive(v) for k, v in how.items()},
    )
    terms = parts * (weight.numel() + 2)
    u, stored = ROUNDING.get(input.dtype, 2.0**-24), STORED[input.dtype]
    return exact, sums * (terms * u / (1 - terms * u)) * (1 + stored) + 2 * parts * stored * sums


def relative_bound(name: str, *arguments: Any, **how: Any) -> float:
    """The relative RMS error of a result whose every element is as far off as it may be."""
    exact, bound = exact_and_bound(name, *arguments, **how)
    return float(bound.detach().norm() / exact.detach().norm())


def _wide(v: Any) -> Any:
    return v.to(torch.complex128 if v.is_complex() else torch.float64)


def check(got: Any, exact: Any, bound: Any, dtype: Any) -> None:
    assert (got.shape, got.dtype) == (exact.shape, dtype)
    assert bool(((_wide(got) - exact).abs() <= bound).all())
