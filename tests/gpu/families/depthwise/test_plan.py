"""Where depthwise kernels are planned, what their plans say, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import winolab
from tests.gpu.families.depthwise.cases import DIRECTIONS, PROBLEMS, layer, offered
from tests.gpu.support.pretended import Array
from winolab.algorithm import Problem, gamma
from winolab.bench.contenders import unnamed
from winolab.device import H100, datasheet
from winolab.gpu.families.depthwise import launch
from winolab.gpu.families.depthwise import plan as depthwise
from winolab.gpu.families.depthwise.config import RECIPROCAL, Config, Stage, kind
from winolab.gpu.families.depthwise.shape import Depthwise
from winolab.gpu.params import View
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import ITEMSIZE, Request
from winolab.gpu.runtime import planned


@pytest.mark.parametrize("precision", ["fp32", "fp32_ffma", "fp16", "bf16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_planner_takes_them_for_every_depthwise_layer(direction: str, precision: str) -> None:
    for problem in PROBLEMS.values():
        if problem.groups > 1:
            p = plan(Request(problem, direction, H100, None, precision))
            assert p.kernel == "depthwise"
            assert 0 < p.predicted < 1e-3


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("3x3", ("rows", "rows", "rows")),
        ("stride 2", ("rows", "scatter", "rows")),
        ("dilation", ("rows", "rows", "rows")),
        ("dilation and stride", ("any", "any", "any")),
        ("large", ("any", "any", "any")),
        ("causal", ("rows", "rows", "rows")),
        ("multiplier", ("rows", "any", "rows")),
    ],
)
def test_each_kernel_has_its_problems(name: str, kinds: tuple[str, ...]) -> None:
    for direction, expected in zip(DIRECTIONS, kinds, strict=True):
        d = Depthwise.of(PROBLEMS[name], direction)
        assert kind(d, direction == "backward_filter") == expected


def test_vectors_need_alignment_and_channels_that_they_divide() -> None:
    def widest(problem: Problem, precision: str, **how) -> int:
        return max(p.config.vector for p in offered(problem, "forward", precision, **how))

    assert widest(layer((1, 9, 9, 16), (3, 3)), "fp32") == 4
    assert widest(layer((1, 9, 9, 16), (3, 3)), "fp16") >= 4
    assert widest(layer((1, 9, 9, 6), (3, 3)), "fp32") == 2
    assert widest(layer((1, 9, 9, 7), (3, 3)), "fp32") == 1
    assert widest(layer((1, 9, 9, 16), (3, 3)), "fp32", aligned=False) == 1
    assert widest(layer((1, 9, 9, 16), (3, 3), 2), "fp32") == 1


def test_a_filter_s_one_channel_does_not_keep_maps_from_vectors(library, monkeypatch) -> None:
    """w and dw have pixels of one element, which no vector reads: calls plan by x and y alone."""
    asked = []
    x, w = np.ones((1, 6, 8, 64), "f"), np.ones((64, 3, 3, 1), "f")
    problem = Problem.of(x.shape, w.shape, padding=1, groups=64)
    for direction in DIRECTIONS:
        request = unnamed(direction, problem, "fp32", H100)
        assert (request.aligned, request.maps_aligned) == (False, True)
        assert any(p.config.stages for p in depthwise.plans(request))
    monkeypatch.setattr(planned, "planned", lambda request, apart: asked.append(request) or 1 / 0)
    for made in (
        lambda: winolab.conv_forward(Array(x), Array(w), padding=1, groups=64),
        lambda: winolab.conv_backward_data(Array(x), Array(w), x.shape, padding=1, groups=64),
        lambda: winolab.conv_backward_filter(Array(x), Array(x), w.shape, padding=1, groups=64),
    ):
        with pytest.raises(ZeroDivisionError):
            made()
    assert [request.maps_aligned for request in asked] == [True] * 3


def test_rows_come_ahead_where_bulk_copies_read_arrays() -> None:
    """On 9.0, of aligned arrays without dilation; blocks and stages are as large as allowed."""

    def stages(problem: Problem, direction: str = "forward", **how) -> int:
        return max(p.config.stages for p in offered(problem, direction, "fp32", **how))

    problem = layer((32, 56, 56, 96), (7, 7), padding=3)
    for direction in DIRECTIONS:
        assert stages(problem, direction) >= 2
    assert stages(problem, aligned=False) == 0
    assert stages(layer((32, 56, 56, 96), (7, 7), padding=6, dilation=2)) == 0
    assert stages(layer((32, 56, 56, 90), (7, 7), padding=3)) == 0
    earlier = Request(problem, "forward", datasheet("a100"), None, "fp32")
    assert all(p.config.stages == 0 for p in depthwise.plans(earlier))
    for p in offered(problem, "backward_filter", "fp16"):
        if p.config.stages:
            assert max(p.shared().values()) <= 56 << 10
            assert p.config.images * p.config.strips == p.config.slots
            assert p.config.group % p.shape.stride[1] == 0


def test_plain_kernels_are_of_few_outputs() -> None:
    """One image of networks' layers takes them, many images do not; what numbers of their blocks
    are divided by, reciprocals give exactly."""
    assert _picked((1, 14, 14, 480), 3) == _picked((1, 28, 28, 240), 5) == "plain"
    assert _picked((32, 28, 28, 240), 5) == _picked((32, 14, 14, 480), 3) == "rows"
    few = offered(layer((1, 512, 512, 4), (3, 3), padding=1), "forward", "fp32")
    many = offered(layer((1, 512, 512, 8), (3, 3), padding=1), "forward", "fp32")
    assert any(p.config.kind == "plain" for p in few)
    assert all(p.config.kind != "plain" for p in many)
    for problem in (layer((3, 5, 7, 9, 4), (3, 3, 3)), layer((2, 1, 3000, 8), (1, 3)),
                    layer((1, 3000, 1, 8), (3, 1)), layer((1, 90, 119, 4), (5, 5))):  # fmt: skip
        found = [p for p in offered(problem, "forward", "fp32") if p.config.kind == "plain"]
        assert found
        for p in found:
            assert math.prod(p.grid) == p.blocks >= p.chunks * -(-p.work_tiles // p.config.slots)
            assert p.grid[1] * p.config.slots >= p.segments * p.strips
            numbers = np.arange(p.grid[1] * p.config.slots), np.arange(p.grid[2])
            for n, divisor in zip(numbers, (p.strips, p.shape.output[0]), strict=True):
                assert (n * -(-RECIPROCAL // divisor) >> 30 == n // divisor).all()
    wide = layer((1, 1, 1 << 18, 1), (1, 3))  # whose numbers times strips are too large
    assert all(p.config.kind != "plain" for p in offered(wide, "forward", "fp32"))


@pytest.mark.parametrize(
    ("channels", "precision", "lanes"),
    [
        (480, "fp32", {1: 32, 2: 32, 4: 32}),
        (144, "bf16", {1: 32, 2: 16, 4: 8, 8: 4}),  # of 160 or 192
        (200, "fp16", {1: 32, 2: 16, 4: 8, 8: 4}),  # of 224 or 256
        (32, "fp32", {1: 32, 2: 16, 4: 8}),
        (6, "fp32", {1: 8, 2: 4}),
    ],
)
def test_plain_blocks_read_half_a_line_and_have_few_idle(channels, precision, lanes) -> None:
    problem = layer((1, 14, 14, channels), (3, 3), padding=1)
    found = [p.config for p in offered(problem, "forward", precision) if p.config.kind == "plain"]
    assert {v.vector: v.lanes for v in found} == lanes


def _picked(x: tuple[int, ...], taps: int) -> str:
    problem = layer(x, (taps, taps), padding=taps // 2)
    picked = plan(Request(problem, "forward", datasheet("h200"), None, "fp32"))
    return str(picked.config).split()[0]


def test_boxes_are_what_bulk_copies_bring() -> None:
    """Whole 16 bytes wide, at most 256 elements along a dimension: 8 channels of 16 bits, too."""
    found = 0
    for channels, taps, size in itertools.product((4, 8, 24, 40, 256), (3, 5, 7), (7, 112)):
        for stride, precision, direction in itertools.product((1, 2), ("fp32", "fp16"), DIRECTIONS):
            problem = layer(
                (8, size, size, channels), (taps, taps), padding=taps // 2, stride=stride
            )
            for p in offered(problem, direction, precision):
                if not p.config.stages:
                    continue
                itemsize = ITEMSIZE[p.dtype]
                stage = Stage.of(p.shape, p.config, p.gradient, itemsize)
                for box in filter(None, (stage.x, stage.dy)):
                    found += 1
                    assert box[0] * itemsize % 16 == 0, p
                    assert 1 <= min(box) <= max(box) <= 256, p
    assert found > 1000


def test_blocks_that_stay_take_turns_of_equal_length() -> None:
    problem = layer((32, 56, 56, 96), (7, 7), padding=3)
    for p in offered(problem, "forward", "fp32"):
        if p.workers:
            each = -(-p.work_tiles // p.workers)
            assert -(-p.work_tiles // each) == p.workers
            assert p.blocks == p.chunks * p.workers


def test_a_gradient_s_parts_stay_within_the_workspace() -> None:
    problem = layer((32, 56, 56, 96), (7, 7), padding=3)
    free = plan(Request(problem, "backward_filter", H100))
    assert free.workspace > 0
    for limit in (0, free.workspace // 2):
        p = plan(Request(problem, "backward_filter", H100, workspace_limit=limit))
        assert p.kernel == "depthwise"
        assert p.workspace <= limit
    assert free.sums[0].count > 1
    assert free.sums[0].products * free.sums[0].count == pytest.approx(32 * 56 * 56)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": gamma(8, 6, 3)}, "do not compute gamma:8:6:3"),
        ({"problem": layer((0, 5, 5, 8), (3, 3))}, "need something to sum"),
        ({"problem": layer((1, 5, 5, 8), (3, 3), padding=1, stride=1 << 40)}, "the stride is 109"),
    ],
)
def test_what_cannot_run_is_refused(change, message) -> None:
    asked = {"problem": layer((1, 5, 5, 8), (3, 3)), "direction": "forward", "device": H100}
    with pytest.raises(ValueError, match=message):
        list(depthwise.plans(Request(**{**asked, **change})))


def test_other_groups_are_another_family_s() -> None:
    problem = Problem.of((1, 9, 9, 8), (8, 3, 3, 4), groups=2, stride=2)
    assert not list(depthwise.plans(Request(problem, "forward", H100)))
    with pytest.raises(ValueError, match="as many groups as input channels, not 2 of 8"):
        Depthwise.of(problem, "forward")
    assert plan(Request(problem, "backward_filter", H100)).kernel == "implicit GEMM"
    alone = Problem.of((1, 9, 9, 8), (8, 3, 3, 1), groups=8, stride=2)
    reasons = candidates(Request(alone, "forward", H100)).reasons
    assert any("stride 1 and dilation 1" in reason for reason in reasons)


def test_a_plan_says_what_it_does() -> None:
    problem = layer((2, 9, 9, 32), (3, 3), stride=2, padding=1)
    (p,) = offered(problem, "forward", "fp32", config=Config("rows", 8, 4, 4))
    staged = next(p for p in offered(problem, "forward", "fp32") if p.config.stages)
    assert f"strips={staged.config.strips} group=2 stages=" in str(staged)
    text = str(p)
    assert "depthwise fp32, nothing transformed" in text
    assert text.startswith(f"{problem.told('forward')}\n")
    assert "padding ((1, 1), (1, 1)) stride (2, 2) groups 32\n" in text
    assert "policies   rows 8x4 columns=4" in text
    assert (p.chunks, p.strips, p.workspace, p.prepared_size) == (1, 2, 0, 0)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_public_calls_run_them(library, layout: str) -> None:
    """In either layout, with a stride, and a multiplier; the same numbers as NumPy's."""
    rng = np.random.default_rng(0)
    first = layout == "channels_first"
    x, w = rng.integers(-4, 5, (1, 9, 8, 4)), rng.integers(-4, 5, (8, 3, 3, 1))
    x, w = (np.moveaxis(v, -1, 1).copy() if first else v for v in (x.astype("f"), w.astype("f")))
    how = {"stride": 2, "padding": 1, "groups": 4, "layout": layout}
    y = winolab.conv_forward(x, w, **how)
    dx = winolab.conv_backward_data(y, w, x.shape, **how)
    dw = winolab.conv_backward_filter(x, y, w.shape, **how)
    given = [Array(v) for v in (x, w, y)]
    assert (winolab.conv_forward(given[0], given[1], **how).values == y).all()
    got = winolab.conv_backward_data(given[2], given[1], x.shape, **how)
    assert (got.values == dx).all()
    got = winolab.conv_backward_filter(given[0], given[2], w.shape, **how)
    assert (got.values == dw).all()


def test_what_32_bits_do_not_count_is_refused() -> None:
    """Columns of a dilation, work tiles of phases, and elements between columns."""
    far = layer((1, 1, 1 << 22, 1), (1, 2), dilation=(1, 1 << 21))
    with pytest.raises(ValueError, match="strides × dilation up to"):
        offered(far, "forward", "fp32")
    many = Problem(1, 1, 1, (9, 1 << 30), (1, 2), (1, 1 << 20), ((0, 0),) * 2, (1, 1), 1)
    assert all(p.counted for p in offered(many, "backward_filter", "fp32"))
    with pytest.raises(ValueError, match="work tiles of a depthwise layer is 2415919104,"):
        offered(many, "backward_data", "fp32")


def test_the_distance_of_what_is_not_there_may_be_any() -> None:
    """A row's only column has none; several, as far as 32 bits count a dilation's."""
    for width in (1, 40):
        problem = layer((1, 1, width, 4), (1, 3), dilation=(1, 32), padding=(0, 32))
        p = next(p for p in offered(problem, "forward", "fp32") if p.config.kind == "rows")
        x = View(0, (4, 4, 4, 1 << 26))
        if width == 1:
            values = launch.main_params(p, x, View(0, (3, 3, 3, 1, 1)), x, 0).values
            at = {name: i for i, (name, _) in enumerate(launch.PARAMS.fields)}
            assert [values[at[name]] for name in ("x_pixel", "y_pixel", "x_row")] == [0, 0, 0]
            continue
        with pytest.raises(ValueError, match="elements between columns that a dilation parts"):
            launch.main_params(p, x, View(0, (3, 3, 3, 1, 1)), x, 0)
