"""Direct products whose copies walk positions: the kernel's source on the CPU, and on a GPU,
against FP64 within the proven bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.im2col.cases import (
    BACK,
    CASES,
    DIRECTIONS,
    FORTH,
    PROBLEMS,
    STRIDED,
    UNIT,
    layer,
    on_cpu,
    planned,
)
from tests.gpu.support.host_compiler import HostError
from winolab.algorithm import Problem
from winolab.gpu import driver
from winolab.gpu.families.im2col.config import CONFIGS, SHAPES, Config
from winolab.gpu.families.im2col.launch import PARAMS
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.runtime import loader


@pytest.mark.parametrize(
    "execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)], ids=["cpu", "gpu"]
)
@pytest.mark.parametrize(("name", "direction"), CASES)
def test_results_are_those_of_fp64(name: str, direction: str, execute: Any) -> None:
    """Problems take turns with configs, so that each shape and cluster has some."""
    fitting = [v for v in CONFIGS if direction == FORTH or v.bm % 64 == 0]
    at = CASES.index((name, direction))
    for i in range(2 if execute is on_cpu else 6):
        v, precision = fitting[(5 * at + 7 * i) % len(fitting)], ("fp16", "bf16")[i % 2]
        p = planned(PROBLEMS[name], direction, precision, v)
        a, b = operands(p.problem, direction, precision)
        assert too_far(p, a, b, execute(p, a, b)) == 0, p


@pytest.mark.parametrize(
    "execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)], ids=["cpu", "gpu"]
)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_block_of_every_cluster(config: Config, execute: Any) -> None:
    """18 steps in parts that differ in length; the last block has few positions and channels."""
    problem = layer((2, 6, 13, 72), 136, (3, 3), padding=1)
    direction = (BACK, FORTH)[config.bm % 64 > 0 or config.split_k % 2]
    p = planned(problem, direction, "fp16", config)
    a, b = operands(problem, direction, "fp16")
    assert too_far(p, a, b, execute(p, a, b)) == 0


@pytest.mark.parametrize("split_k", [1, 3, 8])
def test_stages_are_used_again(split_k: int) -> None:
    problem = layer((1, 5, 9, 200), 24, (3, 3), padding=1)
    p = planned(problem, FORTH, "bf16", Config(64, 32, 2 if split_k < 3 else 3, split_k))
    assert p.steps == 36 > p.config.stages * split_k
    a, b = operands(problem, FORTH, "bf16")
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0


def test_a_result_is_the_same_in_any_order_of_threads() -> None:
    problem = UNIT["3x3"]
    p = planned(problem, FORTH, "fp16", Config(64, 64, 4, 4))
    a, b = operands(problem, FORTH, "fp16")
    found = []
    for seed in (0, 5):
        y = np.full(problem.y_shape, np.nan, "float16")
        ends = hosted.pixels_view(a), hosted.filter_view(b), hosted.pixels_view(y)
        p.launch(hosted.loaded(p, seed), *ends, 0, 0)
        found.append(y)
    np.testing.assert_array_equal(*found)


def test_integers_are_exact_and_adjoint() -> None:
    for name in ("3x3", "dilation", "cut", "groups"):
        problem = UNIT[name]

        def computed(direction: str, a: Any, b: Any, problem: Problem = problem) -> Any:
            return on_cpu(planned(problem, direction, "fp16", Config(64, 64, 3, 3)), a, b)

        check_adjoint(problem, DIRECTIONS, "float16", computed)


def test_infinities_and_nan_stay_in_their_windows() -> None:
    """A pixel's are in the outputs that meet it, a group's in its own."""
    problem = STRIDED["3x3 stride 2"]
    p = planned(problem, FORTH, "fp16", Config(64, 64, 3, 2))
    a, b = operands(problem, FORTH, "fp16")
    a[0, 2, 4, 3], a[1, 8, 11, 0] = np.inf, np.nan
    expected = np.zeros(problem.y_shape, bool)
    expected[0, 1, 2], expected[1, 4, 5] = True, True
    assert (~np.isfinite(on_cpu(p, a, b)) == expected).all()
    problem = UNIT["groups"]
    for direction, a, b in ((d, *operands(problem, d, "fp16")) for d in DIRECTIONS):
        a[..., 70] = np.nan
        found = np.isnan(on_cpu(planned(problem, direction, "fp16", Config(64, 64, 3)), a, b))
        assert found[..., 64:].any()
        assert not found[..., :64].any()


def test_gaps_between_rows_and_images_stay_as_they_are() -> None:
    problem = UNIT["1x1"]
    p = planned(problem, FORTH, "fp16", Config(64, 64, 3, 2))
    a, b = operands(problem, FORTH, "fp16")
    wide = {v.shape[-1]: np.full((3, 10, 9, v.shape[-1] + 8), 7, "float16") for v in (a, b[..., 0])}
    x, y = wide[136], np.full((3, 10, 9, 48), 7, "float16")
    x[:, :8, :7, :136] = a
    ends = [
        View(v.ctypes.data, (90 * v.shape[-1], 0, 9 * v.shape[-1], v.shape[-1])) for v in (x, y)
    ]
    p.launch(hosted.loaded(p), ends[0], hosted.filter_view(b), ends[1], 0, 0)
    assert (y[:, :8, :7, :40] == on_cpu(p, a, b)).all()
    y[:, :8, :7, :40] = 7
    assert (y == 7).all()


@pytest.mark.gpu
def test_views_have_the_bits_of_copies() -> None:
    """Maps of every second image, row or pixel, of some channels, of one image or row repeated."""
    cupy = driver.cupy()
    rng = np.random.default_rng(5)
    large = cupy.asarray(rng.standard_normal((6, 24, 42, 56)).astype("float16"))
    w = cupy.asarray(rng.standard_normal((40, 3, 3, 32)).astype("float16"))
    views = {
        "images": large[::2, :, :, 8:40],
        "rows": large[:, 1::2, :, 16:48],
        "pixels": large[:, :, 2::3, :32],
        "one image": cupy.broadcast_to(large[3, :, :, 8:40], (5, 24, 42, 32)),
        "one row": cupy.broadcast_to(large[:, :1, :, 8:40], (6, 9, 42, 32)),
    }
    for name, x in views.items():
        problem = Problem.of(x.shape, w.shape, padding=1, stride=2)
        p = planned(problem, FORTH, "fp16", Config(64, 64, 3, 2))
        kernels = loader.load(p.source(), str(p), p.shared(), 0)
        got, copied = (cupy.full(problem.y_shape, cupy.nan, "float16") for _ in range(2))
        for v, y in ((x, got), (cupy.ascontiguousarray(x), copied)):
            p.launch(
                kernels, hosted.pixels_view(v), hosted.filter_view(w), hosted.pixels_view(y), 0, 0
            )
        assert bool((got == copied).all()), name


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_parameters_and_shared_memory_are_as_large_as_planned(
    direction: str, compiled: Any
) -> None:
    for v in (next(v for v in CONFIGS if (v.bn, v.bm) == shape[:2]) for shape in SHAPES):
        if direction == BACK and v.bm % 64:
            continue
        p = planned(UNIT["3x3"], direction, "fp16", v)
        check = f"\nstatic_assert(sizeof(PositionsParams) == {-(-PARAMS.size // 64) * 64});"
        check += f"\nstatic_assert(sizeof(PositionsShared) == {v.shared_memory});"
        assert not any(kernel.spills for kernel in compiled(p.source() + check).values())


def test_the_engine_says_what_a_map_does_not_reach() -> None:
    """A tap beyond what an instruction can say; plans refuse it before."""
    problem = layer((1, 4, 300, 8), 8, (1, 2), dilation=(1, 256), padding=(0, 128))
    near = planned(UNIT["3x3"], FORTH, "fp16", Config(64, 32, 3))
    far = replace(near, problem=problem, correlation=Correlation.of(problem, FORTH, unit=False))
    assert far.unreached() == "taps that lie at most 255 apart"
    with pytest.raises(HostError, match="a tap at 256"):
        on_cpu(far, *operands(problem, FORTH, "fp16"))
