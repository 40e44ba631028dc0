"""WinRS's own plan on FFMA units: its pair and segments, the reference's bits, results on a GPU."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gpu import hosted
from winolab.algorithm import Problem, parse_algorithm, winrs
from winolab.bench import oracle
from winolab.device import DATASHEETS, H100
from winolab.gpu import driver
from winolab.gpu.families.wgrad_ffma.plan import WinrsPlan, plans
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.algorithms.winrs import gradient
from winolab.ref.algorithms.winrs.plan import plan as planned
from winolab.ref.arithmetic.simulated import arithmetic

FEW = replace(H100, multiprocessors=4)  # so that blocks walk over several work tiles
AHEAD = 8  # buckets that split_k.cuh loads at once; those that lack are zeros, which it adds, too
CASES = {
    "two kernels, rows cut": ((2, 6, 20, 5), (7, 3, 3, 5), 1, 6),
    "columns cut": ((3, 7, 16, 8), (8, 2, 2, 8), 0, 2),
    "one dimension": ((3, 29, 4), (4, 5, 4), 2, 3),
    "depths and rows cut": ((2, 3, 5, 13, 4), (4, 2, 3, 3, 4), 1, 12),
    "nothing transformed": ((2, 9, 28, 8), (8, 1, 1, 8), 0, 4),
    "groups, one segment": ((2, 5, 12, 8), (6, 3, 3, 4), 1, 1),
}


def made(problem: Problem, segments: int | None, device=FEW, points: str = "best") -> WinrsPlan:
    named = winrs(segments=segments, points=points)
    (found,) = plans(Request(problem, "backward_filter", device, named, "fp32"))
    assert isinstance(found, WinrsPlan)
    return found


def problem_of(x: tuple[int, ...], w: tuple[int, ...], padding: int) -> Problem:
    return Problem.of(x, w, padding=padding, groups=x[-1] // w[-1])


def images_first(p: Problem) -> Problem:
    """The same sums with the images as a dimension: the kernels' order, images outermost."""
    return Problem.of(
        (1, p.batch, *p.x_shape[1:]),
        (p.out_channels, 1, *p.w_shape[1:]),
        padding=[(0, 0), *p.padding],
        groups=p.groups,
    )


def simulated(x: np.ndarray, dy: np.ndarray, p: Problem, segments: int) -> np.ndarray:
    """What the reference makes of the plan's segments, in the order that the kernels state."""
    whole, run, of = images_first(p), arithmetic("fp32"), programs_of(winrs())
    boxes = [
        replace(s, start=(0, *s.start), size=(p.batch, *s.size))
        for s in planned(p, FEW, segments=segments).segments
    ]
    buckets = [gradient.run(x[None], dy[None], whole, [box], run, of) for box in boxes]
    zero = np.zeros_like(buckets[0])
    ends = -(len(buckets) - 1) % AHEAD
    return gradient.reduce([*buckets, *[zero] * ends], run).reshape(p.w_shape)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_bit_is_the_reference_s(case) -> None:
    *shapes, segments = case
    p = problem_of(*shapes)
    rng = np.random.default_rng(0)
    x, dy = (rng.uniform(-1, 1, s).astype("f") for s in (p.x_shape, p.y_shape))
    found = made(p, segments)
    dw = hosted.execute(found, x, dy)
    assert np.array_equal(dw, hosted.execute(found, x, dy, seed=3))
    assert np.array_equal(dw, simulated(x, dy, p, segments))


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(1, 40), size=st.tuples(st.integers(4, 60), st.integers(4, 60)),
    taps=st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 3, 5, 7, 9])),
    padding=st.integers(0, 2), segments=st.none() | st.integers(1, 40),
    device=st.sampled_from(["h100", "rtx4090", "a100"]),
)  # fmt: skip
def test_what_is_launched_is_what_its_planner_says(
    batch, size, taps, padding, segments, device
) -> None:
    """Pair, segments and their boxes, workspace: cut by hand as the kernels cut them."""
    if any(s + 2 * padding < t for s, t in zip(size, taps, strict=True)):
        return
    p = Problem.of((batch, *size, 24), (40, *taps, 24), padding=padding)
    wanted = planned(p, device, segments=segments)
    found = made(p, segments, DATASHEETS[device])
    assert [k.tile for k in found.parts] == [k.tile for k in wanted.pair.kernels]
    assert (found.segments, found.workspace) == (len(wanted.segments), wanted.workspace)
    assert found.segment == wanted.segment_shape
    boxes = {}
    for part in found.parts:
        _, rows, columns = part.cuts
        for box in range(rows):
            first, last = (i * p.output[0] // rows for i in (box, box + 1))
            for at in range(columns):
                start, bucket = part.column + at * part.pitch, box * part.buckets + part.bucket + at
                boxes[bucket] = part.tile, (first, start), (last - first, part.pitch)
    assert [boxes[i] for i in range(len(boxes))] == [
        (s.tile, s.start, s.size) for s in wanted.segments
    ]
    shares = [s.fraction for s in found.sums]
    assert sum(shares) == pytest.approx(1)
    assert 0 < found.predicted < 10


def test_the_planner_runs_it_where_it_is_named() -> None:
    """Also where split products would be faster; points, limits and what is refused."""
    p = Problem.of((32, 56, 56, 64), (64, 3, 3, 64), padding=1)
    asked = Request(p, "backward_filter", H100, winrs(), "fp32")
    assert isinstance(plan(asked), WinrsPlan)
    assert "Ω8(3,6) and Ω4(3,2) fp32, points best, by WinRS's planner" in str(plan(asked))
    assert plan(replace(asked, workspace_limit=0)).workspace == 0
    assert made(p, None, H100, "paper").parts[0].points == "paper"
    for text, message in (
        ("winrs;device=rtx4090", "name the algorithm without a device"),
        ("winrs;scaling=l1", "winrs without options"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(replace(asked, algorithm=parse_algorithm(text)))
    with pytest.raises(ValueError, match="in fp32_split name omega"):
        plan(replace(asked, precision="fp32_split"))
    wide = Problem.of((2, 9, 30, 8), (8, 3, 11, 8))
    with pytest.raises(ValueError, match="no fp32 kernel computes a filter 11 wide"):
        plan(replace(asked, problem=wide))


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_on_the_device(case) -> None:
    """The reference's bits from kernels of NVIDIA's compiler, on poisoned memory, and FP64."""
    *shapes, segments = case
    p, cp = problem_of(*shapes), driver.cupy()
    rng = np.random.default_rng(1)
    x, dy = (rng.uniform(-1, 1, s).astype("f") for s in (p.x_shape, p.y_shape))
    found = made(p, segments)
    kernels = loader.load(found.source(), str(found.config), found.shared(), 0)
    guard = 4096
    memory = cp.full(math.prod(p.w_shape) + 2 * guard, cp.nan, "float32")
    buckets = cp.full(found.workspace // 4 + 2 * guard, cp.nan, "float32")
    dw = memory[guard:-guard].reshape(p.w_shape)
    on_device = cp.asarray(x), cp.asarray(dy), dw
    views = [ArrayLayout.fresh(a.shape).view(a.data.ptr, filter=a is dw) for a in on_device]
    a, b, out = views
    found.launch(kernels, a, b, out, buckets[guard:].data.ptr, 0)
    for zone in (memory[:guard], memory[-guard:], buckets[:guard], buckets[-guard:]):
        assert bool(cp.isnan(zone).all())
    assert np.array_equal(cp.asnumpy(dw), simulated(x, dy, p, segments))
    exact = oracle.fp64("backward_filter", p, *on_device[:2])
    assert oracle.relative_rms(dw, exact) <= 1e-5
