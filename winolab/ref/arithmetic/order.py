"""The order in which a kernel sums its products, so that the reference repeats every bit of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from winolab.ref.arithmetic.simulated import Arithmetic

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Order:
    """How Γ and implicit-GEMM kernels sum: depth tap, group of `share` rows of the filter, piece of
    its width, chunk of `chunk` channels, row of the group, channel.

    The loop down to the chunks is cut into `split_k` equal parts, each summed from zero; the parts
    are added in order. Within one, `fold` rows of a chunk, where it is not 0, are summed from zero
    and added to a second accumulator: two-level summation.

    With `partial` the loop is run through in equal pieces, each part of about so many chunks at
    most; the outputs of each are transformed, and added up in order.

    `padded`: filter rows that the last group lacks, and channels that the last chunk lacks, are
    zeros that are multiplied, as the Tensor Core does.
    """

    chunk: int
    share: int = 1
    split_k: int = 1
    fold: int = 0
    partial: int = 0
    padded: bool = False

    def parts(self, pieces: Sequence[int], channels: int) -> list[list[list[Indices]]]:
        """Per sum, part and fold, the places of its products in the order pieces, then channels; -1
        of a zero.

        ``pieces``: of the filter's dimensions, up to three. Raises ValueError where `share` does
        not divide the height, unless it is filled up.
        """
        depth, height, width = (1,) * (3 - len(pieces)) + tuple(pieces)
        if height % self.share and not self.padded:
            raise ValueError(f"share={self.share} does not divide a filter {height} high")
        chunks, groups = -(-channels // self.chunk), -(-height // self.share)
        whole = (depth, groups * self.share, width, chunks * self.chunk)
        places = np.full(whole, -1, dtype=np.intp)
        places[:, :height, :, :channels] = np.arange(depth * height * width * channels).reshape(
            depth, height, width, channels
        )
        loops = places.reshape(depth, -1, self.share, width, chunks, self.chunk)
        rows = loops.transpose(0, 1, 3, 4, 2, 5).reshape(-1, self.chunk)
        steps = len(rows) // self.share
        ends = [steps * rank // self.split_k for rank in range(self.split_k + 1)]
        sums = -(-steps // (self.partial * self.split_k)) if self.partial else 1
        return [
            [
                self._folds(rows, *(first + (last - first) * s // sums for s in (at, at + 1)))
                for first, last in pairwise(ends)
            ]
            for at in range(sums)
        ]

    def _folds(self, rows: Indices, begin: int, end: int) -> list[Indices]:
        begin, end = begin * self.share, end * self.share
        length = self.fold or max(1, end - begin)
        folds = (rows[i : min(i + length, end)].ravel() for i in range(begin, end, length))
        return [fold if self.padded else fold[fold >= 0] for fold in folds]

    def matmuls(
        self, a: NDArray, b: NDArray, pieces: Sequence[int], channels: int, run: Arithmetic
    ) -> Iterator[NDArray]:
        """a (…, M, K) @ b (…, K, N) in this order: every sum of it."""
        if self.padded:
            a = np.concatenate([a, np.zeros_like(a[..., :1])], -1)
            b = np.concatenate([b, np.zeros_like(b[..., :1, :])], -2)
        for parts in self.parts(pieces, channels):
            totals = []
            for part in parts:
                sums = [run.matmul(a[..., i], b[..., i, :]) for i in part]
                totals.append(add(sums, run) if sums else run.matmul(a[..., :0], b[..., :0, :]))
            yield add(totals, run)


def add(terms: Sequence[NDArray], run: Arithmetic) -> NDArray:
    """The sum of the terms in order."""
    total, *rest = terms
    for term in rest:
        total = run.add(total, term)
    return total
