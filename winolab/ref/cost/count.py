"""What an algorithm costs before it runs: multiplications, transforms, memory.

Transforms are counted from their programs, an FMA being one instruction (Lavin & Gray's count) and
multiplications by powers of two apart (DWM's). Transformed operands count once each, as the
reference computes them; a fused kernel that transforms again for every block pays more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Algorithm, Problem, parse_algorithm
from winolab.ref.cost.blocks import Operations, Work, operands
from winolab.ref.kinds.registry import ENGINES

DIRECTIONS = ("forward", "backward_data", "backward_filter")


@dataclass(frozen=True)
class Cost:
    """What it takes of one convolution in one direction; memory in elements.

    ``products`` are the multiplications of the element-wise products (each with an addition),
    ``transformed`` the elements of the transformed filters, data and results, all pieces at once:
    the workspace of an algorithm that does not fuse its stages (WinRS does: its buckets);
    ``compulsory`` is the traffic of one that does, every tensor once.
    """

    algorithm: Algorithm
    direction: str
    products: int
    data: Operations
    filter: Operations
    inverse: Operations
    transformed: tuple[int, int, int]
    compulsory: int

    @property
    def transforms(self) -> Operations:
        return self.data + self.filter + self.inverse

    @property
    def flops(self) -> int:
        """Everything, a multiply-add being two."""
        return 2 * self.products + self.transforms.flops

    @property
    def instructions(self) -> int:
        """Everything, a multiply-add being one: L of Lavin & Gray, eq. 23."""
        return self.products + self.transforms.instructions

    @property
    def workspace(self) -> int:
        """Elements, stages not fused."""
        return sum(self.transformed)

    @property
    def traffic(self) -> int:
        """Elements read and written, stages not fused: what is transformed goes out and in."""
        return self.compulsory + 2 * self.workspace


def cost(problem: Problem, algorithm: str | Algorithm, direction: str = "forward") -> Cost:
    """The cost of ``algorithm``, a value or its text, for ``problem``.

    Raises ValueError where the algorithm does not serve the problem, and for transforms by FFT
    whose length is no power of two, for which there is no count.
    """
    algorithm = parse_algorithm(algorithm)
    found = work(problem, algorithm, direction)
    images, channels, columns = operands(problem, direction)
    products = 0
    transforms = [Operations()] * 3
    memory = [0] * 3
    for block in found.blocks:
        tiles = images * math.prod(a.tiles for a in block.axes) * problem.groups
        pieces = math.prod(a.pieces for a in block.axes) * channels
        filters = problem.groups * pieces * columns
        products += tiles * pieces * columns * block.states
        for i, (one, size, times) in enumerate(
            (
                (block.data, block.right, tiles * pieces),
                (block.filter, block.left, filters),
                (block.inverse, block.result, tiles * columns),
            )
        ):
            transforms[i] += one * times
            memory[i] += size * times
    transforms[2] += Operations(additions=found.additions)
    if found.workspace is not None:
        memory = [0, 0, found.workspace]
    compulsory = sum(math.prod(s) for s in (problem.x_shape, problem.w_shape, problem.y_shape))
    return Cost(
        algorithm,
        direction,
        products,
        transforms[0],
        transforms[1],
        transforms[2],
        (memory[1], memory[0], memory[2]),
        compulsory,
    )


def work(problem: Problem, algorithm: Algorithm, direction: str) -> Work:
    """What ``algorithm`` computes, as its kind's engine does. Raises ValueError as ``cost``."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction {direction!r}; expected one of {', '.join(DIRECTIONS)}")
    return ENGINES[algorithm.kind].work(problem, algorithm, direction)
