"""Other libraries' algorithms by their names there: the tile, and the formats, that they mean here.

The tiles are those that the names state, or that the libraries' sources and manuals say; cuDNN says
of its own only what they are called, and its kernels' names the rest. The formats of FP16 are those
whose simulated errors are what was reported of these libraries (the tutorial on tolerances).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from winolab.algorithm import Algorithm, direct, fft, parse_algorithm, winograd
from winolab.arguments.words import plural
from winolab.kind import TILE
from winolab.problem import Problem

Made = Callable[[re.Match[str], Problem, str], Algorithm]


def _tile(n: int, r: int) -> Made:
    """F(n×n, r×r), in gradients of filters F(r×r, n×n)."""

    def made(found: re.Match[str], problem: Problem, direction: str) -> Algorithm:
        sizes = (n,) * problem.ndim, (r,) * problem.ndim
        return winograd(*(reversed(sizes) if direction == "backward_filter" else sizes))

    return made


def _named_tile(found: re.Match[str], problem: Problem, direction: str) -> Algorithm:
    """The tile that the name states: f2x3 and <2-3> are F(2×2, 3×3)."""
    n, r = (int(size) for size in found.groups())
    return winograd((n,) * problem.ndim, (r,) * problem.ndim)


def _by_filter(found: re.Match[str], problem: Problem, direction: str) -> Algorithm:
    """Arm Compute Library's: F(4×4, 3×3) and F(2×2, 5×5), six states each, F(6, 3) along a row."""
    tiles = []
    for taps in problem.filter:
        n = {1: 1, 3: 6 if 1 in problem.filter else 4, 5: 2, 7: 2}.get(taps)
        if n is None:
            raise ValueError(
                f"{found.string} has no tile for a filter of {plural(taps, 'tap')}; expected 1, 3, "
                "5 or 7, or an algorithm of your own"
            )
        tiles.append(n)
    return winograd(tiles, problem.filter)


def _direct(found: re.Match[str], problem: Problem, direction: str) -> Algorithm:
    return direct()


def _whole(found: re.Match[str], problem: Problem, direction: str) -> Algorithm:
    """One transform of the whole map."""
    ends = (i + lo + hi for i, (lo, hi) in zip(problem.input, problem.padding, strict=True))
    return fft([1 << (max(2, size) - 1).bit_length() for size in ends])


def _tiled_fft(found: re.Match[str], problem: Problem, direction: str) -> Algorithm:
    return fft(32)


RULES: dict[str, tuple[tuple[str, Made], ...]] = {
    "cudnn": (
        (r"implicit_gemm|implicit_precomp_gemm|gemm|direct|algo_[01]", _direct),
        (r"winograd", _tile(2, 3)),
        (r"winograd_nonfused", _tile(4, 3)),
        (r"fft", _whole),
        (r"fft_tiling", _tiled_fft),
    ),
    "miopen": (
        (r".*winograd?.*f(\d)x(\d).*", _named_tile),
        (r".*wino.*<(\d)-(\d).*", _named_tile),
        (r"fft", _whole),
        (r".*(?:gemm|direct|naive).*", _direct),
    ),
    "acl": ((r"winograd", _by_filter), (r"gemm|direct|indirect", _direct)),
    "onednn": (
        (r"jit_wino_(\d)x(\d).*", _named_tile),
        (r"jit|gemm|brgconv|ref", _direct),
    ),
}
EXAMPLES = (
    "cudnn:winograd_nonfused", "miopen:ConvBinWinogradRxSf2x3g1", "miopen:GemmFwdRest",
    "acl:winograd", "onednn:jit_wino_4x3",
)  # fmt: skip
# By library: the arithmetic that a precision means, for transformed tiles and for direct products.
FP16_SUMS = "fp16,transform=fp16,accumulate=fp16,accumulation=sequential"
FORMATS = {
    "miopen": {"fp16": ("fp16,transform=fp16", "fp16")},
    "acl": {"fp16": (FP16_SUMS, FP16_SUMS)},
}


@dataclass(frozen=True)
class Peer:
    """What a library's algorithm means here."""

    name: str
    algorithm: Algorithm
    precision: str


def peer(name: str, problem: Problem, direction: str, precision: str) -> Peer | None:
    """The algorithm and the arithmetic that "library:name" means; None where it is no library's.

    Also "F(4x4,3x3)", a tile without a library. Raises ValueError for a name that the library does
    not have, or that does not serve the problem.
    """
    text = name.strip()
    if TILE.match(text):
        return Peer(text, parse_algorithm(text), precision)
    library, _, algorithm = text.partition(":")
    rules = RULES.get(library.lower())
    if rules is None:
        return None
    for pattern, made in rules:
        if found := re.fullmatch(pattern, algorithm.lower()):
            chosen = made(found, problem, direction)
            formats = FORMATS.get(library.lower(), {}).get(precision, (precision, precision))
            return Peer(text, chosen, formats[chosen.kind == "direct"])
    raise ValueError(
        f"unknown algorithm {name!r}; of other libraries there are names such as "
        f"{', '.join(EXAMPLES)}"
    )
