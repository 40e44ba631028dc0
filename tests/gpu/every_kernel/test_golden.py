"""Fixed problems of small integers: their results are integers that FP32 holds, known by checksum.

Direct kernels have them exactly, those of Γ within the proven bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array
from winolab.algorithm import Problem, parse_algorithm
from winolab.gpu import driver
from winolab.ref.error.bounds import bound

DIRECTIONS = {"forward": "y", "backward_data": "dx", "backward_filter": "dw"}


class Golden(NamedTuple):
    x: tuple[int, ...]
    w: tuple[int, ...]
    padding: Any
    gamma: str | None  # of FP32; None: 16 bits, directly
    y: int  # checksums
    dx: int
    dw: int
    groups: int = 1

    def __str__(self) -> str:
        return f"{self.dtype} x{self.x} w{self.w}"

    @property
    def problem(self) -> Problem:
        return Problem.of(self.x, self.w, padding=self.padding, groups=self.groups)

    @property
    def dtype(self) -> str:
        return "float32" if self.gamma else "float16"


GOLDEN = [
    # one dimension
    Golden((3, 37, 16), (24, 3, 16), 1, "gamma:8:6:3", 0xf6eb6feb, 0xf4b30e0b, 0xb5427807),
    Golden((2, 41, 7), (5, 4, 7), ((3, 0),), "gamma:8:5:4",
           0x794d159a, 0x147bb4ce, 0xd2e5db26),
    # two
    Golden((2, 9, 13, 32), (48, 3, 3, 32), 1, "gamma:8:6:3",
           0x4b9a4867, 0x95a162ef, 0xa68b2a7b),
    Golden((1, 12, 11, 13), (9, 5, 5, 13), 2, "gamma:8:4:5",
           0xa986b4f5, 0xdf327b74, 0x09f1edde),
    Golden((2, 7, 8, 3), (33, 3, 2, 3), ((2, 0), (0, 1)), "gamma:8:7:2",
           0x4c0ca2b4, 0xb88710c1, 0x64cf981e),
    Golden((2, 8, 8, 12), (18, 3, 3, 4), 1, "gamma:4:2:3",
           0x0afa72aa, 0x20ad5ef1, 0x437f29ca, groups=3),
    Golden((1, 10, 10, 20), (20, 1, 1, 20), 0, "direct",
           0x9c210a62, 0x6c1bc135, 0x6cc799a6),
    # three
    Golden((1, 5, 6, 7, 8), (12, 3, 3, 3, 8), 1, "gamma:8:6:3",
           0xb47100c6, 0xa4ca64c9, 0x0db1f5d9),
    Golden((2, 4, 5, 9, 6), (10, 2, 3, 7, 3), ((1, 0), (0, 2), (3, 3)), "gamma:8:2:7",
           0x6da0c10c, 0xd898e986, 0xa138fe57, groups=2),
    # 16 bits
    Golden((2, 9, 13, 32), (48, 3, 3, 32), 1, None, 0x4b9a4867, 0x95a162ef, 0xa68b2a7b),
    Golden((2, 19, 64), (64, 4, 32), ((1, 2),), None,
           0x37ba3af9, 0xfdbae03b, 0x2246b0c0, groups=2),
    Golden((1, 4, 6, 7, 16), (24, 2, 3, 3, 16), ((0, 1), (1, 1), (2, 0)), None,
           0xffd5202d, 0xa8cfd232, 0x601544b9),
]  # fmt: skip


def integers(shape: tuple[int, ...], step: int) -> np.ndarray:
    """From -4 to 4, the same everywhere and always."""
    return np.arange(1, math.prod(shape) + 1).reshape(shape) * step % 127 % 9 - 4


def operands(golden: Golden, direction: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple]:
    """Both operands, and the shape that the call takes."""
    x, w = integers(golden.x, 7), integers(golden.w, 11)
    dy = integers(golden.problem.y_shape, 13)
    return {
        "forward": ((x, w), ()),
        "backward_data": ((dy, w), (golden.x,)),
        "backward_filter": ((x, dy), (golden.w,)),
    }[direction]


def exact(golden: Golden, direction: str) -> np.ndarray:
    arrays, shape = operands(golden, direction)
    how = {"padding": golden.padding, "groups": golden.groups, "precision": "exact"}
    return getattr(winolab, f"conv_{direction}")(*arrays, *shape, **how).astype("<i8")


def check(golden: Golden, direction: str, to: Callable, back: Callable) -> None:
    """Calls of arrays that ``to`` makes, whose values ``back`` gives."""
    (a, b), shape = operands(golden, direction)
    given = [to(v.astype(golden.dtype)) for v in (a, b)]
    how = {"padding": golden.padding, "groups": golden.groups, "out_dtype": "float32"}
    call, expected = getattr(winolab, f"conv_{direction}"), exact(golden, direction)
    assert (back(call(*given, *shape, algorithm="direct", **how)) == expected).all()
    if golden.gamma in (None, "direct") or direction == "backward_filter":
        return
    how |= {"algorithm": golden.gamma, "precision": "fp32_ffma"}
    algorithm, run = parse_algorithm(golden.gamma), winolab.arithmetic("fp32")
    limit = bound(a, b, golden.problem, algorithm, run, direction=direction)
    assert (np.abs(back(call(*given, *shape, **how)) - expected) <= limit).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_the_reference_knows_them(golden: Golden, direction: str) -> None:
    y = exact(golden, direction)
    assert np.abs(y).max() < 1 << 24
    assert crc32(y.tobytes()) == getattr(golden, DIRECTIONS[direction])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_kernels_on_the_cpu(library, golden: Golden, direction: str) -> None:
    check(golden, direction, Array, lambda y: y.values)


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_kernels_on_the_gpu(golden: Golden, direction: str) -> None:
    cp = driver.cupy()
    check(golden, direction, cp.asarray, cp.asnumpy)
