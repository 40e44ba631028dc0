"""The kernel of simulated products on the CPU: NumPy's bits, in every format and order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.gpu.codegen import simulated
from winolab.ref.arithmetic.accumulate import Accumulation, matmul
from winolab.ref.arithmetic.formats import FORMATS, Format
from winolab.ref.arithmetic.tensor_cores import TENSOR_CORES

ORDERS = [
    *("sequential", "two_level:3", "pairwise", "kahan"),
    *("tensor_core:5:2:nearest", "tensor_core:4:1:truncate:8+4", "tensor_core:40:0:truncate"),
    *(str(core.accumulation("fp16")) for core in list(TENSOR_CORES.values())[1:3]),
]
NARROW = [fmt for fmt in FORMATS.values() if fmt.precision < 53]
CASES = [
    (Accumulation.parse(order), fmt, fused)
    for order in ORDERS
    for fmt in NARROW
    for fused in (True, False)
    if fused or order in ("sequential", "kahan")
]
SHAPE = (2, 6, 9, 21)  # matrices, rows, columns, K


@pytest.fixture(scope="module")
def kernels() -> list[hosted.Kernel]:
    """One translation unit of all cases, each in a namespace of its own."""
    units = [
        f"namespace case_{i} {{\n{simulated.source(*case, SHAPE[-1].bit_length(), case[1])}\n}}"
        f"  // namespace case_{i}\n".replace('extern "C" ', "").replace(
            simulated.KERNEL, f"{simulated.KERNEL}_{i}"
        )
        for i, case in enumerate(CASES)
    ]
    names = {f"{simulated.KERNEL}_{i}": 0 for i in range(len(CASES))}
    return list(hosted.load("".join(units), names).values())


def on_host(kernel: hosted.Kernel, order: Accumulation, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b by the kernel, in memory of NaN between zones of NaN."""
    edge = simulated.tile(order)
    left, right = (simulated.operand(v, edge) for v in (a, np.swapaxes(b, -1, -2)))
    count, depth, rows = left.shape
    columns = right.shape[-1]
    c = hosted.Guarded((count, rows, columns), "float32")
    held = [hosted.Guarded.of(v) for v in (left, right)]
    addresses = [g.array.ctypes.data for g in (*held, c)]
    run = {simulated.KERNEL: kernel}
    simulated.launch(run, addresses, (count, rows, columns, depth), edge)
    c.check("c")
    return c.array[:, : a.shape[-2], : b.shape[-1]]


def drawn(rng: np.random.Generator, fmt: Format, kind: str) -> list[np.ndarray]:
    """Numbers of the format: of few bits and exponents, over its whole range, or specials too."""
    count, rows, columns, depth = SHAPE
    shapes = (count, rows, depth), (count, depth, columns)
    p = fmt.precision
    low, high = {"near": (-p // 2, p // 2)}.get(kind, (fmt.emin - p + 1, fmt.emax // 2))
    found = []
    for shape in shapes:
        x = (1 + rng.integers(0, 2, shape) * 2.0 ** -rng.integers(1, p, shape)) * rng.choice(
            [-1, 1], shape
        )
        x = x * np.exp2(rng.integers(low, high + 1, shape))
        x[rng.random(shape) < 0.05] = 0
        if kind == "special":
            x[rng.random(shape) < 0.02], x[rng.random(shape) < 0.01] = np.inf, np.nan
            x[rng.random(shape) < 0.05] = -fmt.max
        found.append(fmt.round(x))
    return found


@pytest.mark.parametrize("kind", ["near", "wide", "special"])
def test_kernels_have_numpys_bits(kernels: list[hosted.Kernel], kind: str) -> None:
    rng = np.random.default_rng(50)
    for kernel, (order, fmt, fused) in zip(kernels, CASES, strict=True):
        a, b = drawn(rng, fmt, kind)
        y = matmul(a, b, order, fmt, fmt, fused).astype(np.float32)
        got = on_host(kernel, order, a, b)
        assert np.array_equal(got, y, equal_nan=True), (order, fmt, fused)
        assert np.array_equal(np.signbit(got)[~np.isnan(y)], np.signbit(y)[~np.isnan(y)])


def test_numpys_own_order_is_refused() -> None:
    with pytest.raises(ValueError, match="NumPy's own, on the CPU: leave gpu=True out"):
        simulated.source(Accumulation("unspecified"), FORMATS["fp64"], True, 3, FORMATS["fp64"])
