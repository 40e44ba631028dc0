"""The kernel of a simulated matrix product, printed from the formats and the order that NumPy has.

winolab.ref.arithmetic.accumulate defines the bits; kernels/simulated.cuh has the orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import MOST, Kernels, uncounted
from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.formats import Format

KERNEL, THREADS, SIDE = "winolab_simulated", 256, 16  # threads of a block, and along an edge of it
PARAMS = layout("SimulatedParams", "simulated")
ORDERS = ("sequential", "two_level", "pairwise", "kahan", "tensor_core")
TILE = {"pairwise": 2}  # outputs of a thread along an edge: it keeps a sum a level of each


def tile(order: Accumulation) -> int:
    """Rows and columns of a thread, which divide those of the operands."""
    return TILE.get(order.kind, 4)


@lru_cache(maxsize=64)
def source(order: Accumulation, fmt: Format, fused: bool, levels: int, product: Format) -> str:
    """The translation unit for sums in ``fmt``, of less than 2^levels products of two numbers of
    the format ``product``.

    Raises ValueError for NumPy's own order, which none can repeat.
    """
    if order.kind not in ORDERS:
        raise ValueError(f"sums of {order} order are NumPy's own, on the CPU: leave gpu=True out")
    constants = {
        "ORDER": ORDERS.index(order.kind),
        "FUSED": int(fused),
        "FP32": int(fmt.name == "fp32"),
        "PRECISION": fmt.precision,
        "EMIN": fmt.emin,
        "EMAX": fmt.emax,
        "INFINITIES": int(fmt.infinities),
        "BLOCK": order.block,
        "EXTRA_BITS": order.extra_bits,
        "TRUNCATE": int(order.rounding == "truncate"),
        "LEVELS": levels if order.kind == "pairwise" else 1,
        "TILE": tile(order),
        "PIECES": max(1, len(order.intervals)),
        "LOWEST": product.emin if order.kind == "tensor_core" else 0,
    }
    lengths = _Intervals(order.intervals or (0,))
    return unit(f"sums {order} in {fmt.name}", constants, {"interval": lengths}, ("simulated",))


class _Intervals:
    """Lengths by turn, as a device function."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths = lengths

    def cuda(self, name: str, wide: bool = False) -> str:
        *first, last = (f"turn == {i} ? {n} : " for i, n in enumerate(self.lengths))
        chosen = "".join(first) + last.split(" ? ")[1].removesuffix(" : ")
        return f"__device__ __forceinline__ int {name}(int turn) {{ return {chosen}; }}"


def operand(x: NDArray, edge: int, dtype: type[np.floating] = np.float32) -> NDArray:
    """(…, rows, K) as the kernel takes it: (G, K, rows filled up to multiples of ``edge``)."""
    rows, depth = x.shape[-2:]
    flat = x.reshape(-1, rows, depth)
    made = np.zeros((len(flat), depth, rows + -rows % edge), dtype)
    with np.errstate(all="ignore"):
        made[..., :rows] = np.swapaxes(flat, 1, 2)
    return made


def launch(
    kernels: Kernels, addresses: Sequence[int], shape: tuple[int, int, int, int], edge: int
) -> None:
    """c = aᵀ b, of the addresses of a, b, c; ``shape``: matrices, rows, columns, K, filled up to
    multiples of ``edge``.

    Raises ValueError for more blocks than CUDA launches.
    """
    matrices, rows, columns, depth = shape
    across = -(-columns // (SIDE * edge))
    blocks = across * -(-rows // (SIDE * edge))
    if matrices * blocks > MOST:
        raise uncounted("the number of blocks of a simulated product", matrices * blocks)
    params = PARAMS.pack(*addresses, rows, columns, depth, across, blocks)
    kernels[KERNEL]((matrices * blocks, 1, 1), THREADS, params)
