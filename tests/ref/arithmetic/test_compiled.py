"""Numba's loops repeat every bit of NumPy's blocks, whatever the format, the order and the data."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.ref.arithmetic import loops
from winolab.ref.arithmetic.accumulate import fma
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import PRESETS, arithmetic

pytest.importorskip("numba")
NARROW = [name for name in FORMATS if name != "fp64"]
PLAIN = ("sequential", "two_level:1", "two_level:3", "two_level:64", "pairwise", "kahan")
SHAPES = ((1, 5, 7, 300), (3, 2, 1, 9), (2, 3, 33, 4), (1, 1, 70, 131))  # groups, M, K, N


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether all bits are the same but those of NaN."""
    a, b = (np.where(np.isnan(v), np.nan, v).astype(np.float64) for v in (a, b))
    return a.tobytes() == b.tobytes()


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "done", 0)
    monkeypatch.setattr(loops, "ENOUGH", loops.ENOUGH)


def both(function: Any) -> tuple[np.ndarray, np.ndarray]:
    """The results of Numba's loops and of NumPy's blocks."""
    loops.ENOUGH = 0
    assert loops.compiled(0) is not None
    compiled = function()
    loops.ENOUGH = sys.maxsize
    assert loops.compiled(0) is None
    return compiled, function()


def drawn(rng: np.random.Generator, fmt: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of the format; of "near" ones many sums lie on ties, "wide" ones leave its range."""
    x = rng.standard_normal(shape)
    if kind == "near":
        x = rng.integers(-64, 65, shape) * 2.0 ** rng.integers(-3, 4, shape)
    low, high = FORMATS[fmt].emin - 12, FORMATS[fmt].emax
    if kind != "near" and kind != "normal":
        x *= 2.0 ** rng.integers(low, high + 1, shape)
    if kind == "tiny":
        x = rng.choice([-1.0, 1.0], shape) * 2.0 ** (low + rng.integers(0, 14, shape))
    if kind == "special":
        x[rng.random(shape) < 0.02] = np.nan
        x[rng.random(shape) < 0.02] = np.inf
        x[rng.random(shape) < 0.02] = -np.inf
    x[rng.random(shape) < 0.1] = 0.0
    x[rng.random(shape) < 0.1] *= -1
    return FORMATS[fmt].round(x)


@st.composite
def orders(draw: st.DrawFn) -> str:
    if draw(st.booleans()):
        return draw(st.sampled_from(PLAIN))
    chunk, bits = draw(st.sampled_from([1, 4, 5, 8, 16])), draw(st.integers(0, 6))
    rounding = draw(st.sampled_from(["nearest", "truncate"]))
    intervals = draw(st.sampled_from(["", f":{2 * chunk}", f":{3 * chunk}+{chunk}"]))
    return f"tensor_core:{chunk}:{bits}:{rounding}{intervals}"


@settings(max_examples=150, deadline=None)
@given(
    accumulate=st.sampled_from(NARROW),
    product=st.sampled_from(NARROW),
    order=orders(),
    fused=st.booleans(),
    kind=st.sampled_from(["normal", "near", "wide", "tiny", "special"]),
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 2**32),
)
def test_every_order_in_every_format_has_the_same_bits(
    accumulate: str, product: str, order: str, fused: bool, kind: str, shape: Any, seed: int
) -> None:
    text = f"fp32,product={product},accumulate={accumulate},accumulation={order}"
    run = arithmetic(text + ("" if fused else ",fused=no"))
    rng, (groups, rows, depth, columns) = np.random.default_rng(seed), shape
    a = drawn(rng, product, kind, (groups, rows, depth))
    b = drawn(rng, product, kind, (groups, depth, columns))
    y, expected = both(lambda: run.matmul(a.astype(np.float32), b.astype(np.float32)))
    assert y.dtype == expected.dtype == np.float32
    assert same(y, expected)


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "fp64"])
def test_presets_have_the_same_bits(preset: str) -> None:
    """Split products and their intervals too; operands that broadcast and that are transposed."""
    run, rng = arithmetic(preset), np.random.default_rng(0)
    a, b = rng.standard_normal((4, 1, 9, 150)), rng.standard_normal((2, 5, 150))
    left, right = run.asarray(a), np.swapaxes(run.asarray(b), -1, -2)
    assert same(*both(lambda: run.matmul(left, right)))


@pytest.mark.parametrize("kind", ["normal", "near", "wide", "tiny", "special"])
def test_multiply_adds_of_elements_have_the_same_bits(kind: str) -> None:
    rng = np.random.default_rng(1)
    a, b, c = (drawn(rng, "fp32", kind, (40, 500)) for _ in range(3))
    dtype = np.dtype(np.float32)
    assert same(*both(lambda: fma(a[:, :1], b, c, FORMATS["fp32"], dtype)))
    thirds = FORMATS["fp32"].round(b / -3)
    assert same(*both(lambda: fma(np.float32(1 / 3), b, thirds, FORMATS["fp32"], dtype)))


def test_without_numba_numpy_serves() -> None:
    """In a process that has none, where there is enough to do."""
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from winolab.ref.arithmetic import loops\n"
        "from winolab.ref.arithmetic.simulated import arithmetic\n"
        "loops.ENOUGH = 1\n"
        "x = np.full((3, 3), 1 / 3, np.float32)\n"
        "assert loops.compiled(10) is None\n"
        "print(arithmetic('fp32').matmul(x, x).dtype)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "float32\n"
