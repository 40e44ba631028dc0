"""What the fused kernel is planned for, and what it says of what it does not serve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import winolab
from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families.fused2d.config import Config, narrow
from winolab.gpu.families.fused2d.cost import spent
from winolab.gpu.families.fused2d.plan import Fused2dPlan, plans
from winolab.gpu.planner import planner
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.request import Request
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.error.predict import CONSTANT

LAYER = Problem.of((64, 56, 56, 64), (64, 3, 3, 64), padding=1)


def asked(
    problem: Problem = LAYER,
    algorithm: str | None = "winograd:2x2:3x3",
    direction: str = "forward",
    precision: str = "fp32_ffma",
    **options,
):
    algorithm_ = parse_algorithm(algorithm) if algorithm else None
    device = options.pop("device", H100)
    return Request(problem, direction, device, algorithm_, precision, **options)


def test_a_plan_adds_up() -> None:
    for p in plans(asked()):
        assert sum(spent(p).values()) == pytest.approx(p.predicted)
        assert p.config.shared_memory <= H100.shared_memory
        assert p.work_tiles == 64 * 28 * 28 // 32 * 64 // p.config.bm
        assert p.workspace == (0 if p.config.fused else 4 * 16 * 64 * 64)
        assert str(p.config) in str(p)


def test_the_planner_serves_the_algorithm_and_its_configs() -> None:
    assert isinstance(planner.plan(asked()), Fused2dPlan)
    for config in (narrow(), Config(fused=True, layout="yan"), Config(images=2, rows=4, columns=4)):
        p = planner.plan(asked(config=config))
        assert isinstance(p, Fused2dPlan)
        assert (p.config.bm, p.config.fused, p.config.layout, p.config.images) == (
            config.bm,
            config.fused,
            config.layout,
            config.images,
        )
    assert planner.plan(asked(workspace_limit=0)).workspace == 0


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (Config(), "64x32x8 channels"),  # filters transformed apart, 64 a block
        (Config(fused=True), "fused=1"),
        (narrow(), "32x32x8 channels"),
        (Config(layout="yan"), "64x32x8 yan"),
        (Config(layout="sts64"), "64x32x8 sts64"),
        (Config(layout="shuffled"), "64x32x8 shuffled"),  # shuffles, y and z not swapped
        (Config(layout="sts64_final"), "64x32x8 sts64_final"),
        (Config(layout="compact", buffers=2), "64x32x8 compact stages=3+2 buffers=2"),
        (Config(order="chwn", layout="sts64"), "order=chwn"),
        (Config(order="nchw", layout="sts64"), "order=nchw"),
        (Config(images=2, rows=4, columns=4), "images=2 rows=4 columns=4"),
        (Config(group=2), "group=2"),
    ],
    ids=str,
)
def test_the_papers_policies_have_names(policy, shown) -> None:
    """Each is taken as it is named, forward and backward data, and said so."""
    for direction in ("forward", "backward_data"):
        p = planner.plan(asked(config=policy, direction=direction))
        assert isinstance(p, Fused2dPlan)
        assert shown in str(p)
        assert str(p.config) in p.source()


def test_loads_run_ahead_in_one_team_only() -> None:
    """Two take turns at the stages, which the kernel's source asserts."""
    with pytest.raises(ValueError, match=r"ahead with teams=2: .* one team"):
        narrow(ahead=True)
    assert narrow(ahead=True, teams=1).ahead


def test_it_serves_what_it_can_alone() -> None:
    for x, w in (
        ((2, 9, 9, 4), (4, 5, 5, 4)),
        ((2, 9, 4), (4, 3, 4)),
        ((2, 5, 9, 9, 4), (4, 3, 3, 3, 4)),
    ):
        with pytest.raises(ValueError, match="two dimensions and 3 × 3 taps"):
            list(plans(asked(Problem.of(x, w), None)))
    with pytest.raises(ValueError, match="winograd:2x2:3x3"):
        planner.plan(asked(algorithm="winograd:4x4:3x3"))
    with pytest.raises(ValueError, match=r"9\.0 or later"):
        list(plans(asked(device=datasheet("a100"))))


def test_one_image_is_split_over_channels() -> None:
    """conv 5 of VGG-E at N = 1: 16 work tiles on 132 multiprocessors, in eight parts 128; of 32
    output channels 32, in four. An H200 takes 33 and 34 µs, the model says 35.0 and 34.9."""
    problem = Problem.of((1, 14, 14, 512), (512, 3, 3, 512), padding=1)
    p = planner.plan(asked(problem))
    assert isinstance(p, Fused2dPlan)
    assert (p.config.bm, p.split_k) in ((64, 8), (32, 4))
    assert p.work_tiles == 128
    whole = [q for q in plans(asked(problem)) if q.split_k == 1]
    assert whole
    assert all(2 * p.predicted < q.predicted for q in whole)
    assert p.workspace == p.prepared_size + p.split_k * 4 * 14 * 14 * 512
    # Without a workspace nothing is split.
    small = planner.plan(asked(problem, workspace_limit=0))
    assert isinstance(small, Fused2dPlan)
    assert (small.workspace, small.config.split_k, small.config.fused) == (0, 0, True)
    assert all(q.split_k == 1 for q in plans(asked()))  # 64 images fill the GPU


@pytest.mark.parametrize("precision", ["fp16_ffma", "bf16_ffma"])
def test_numbers_of_16_bits_have_a_precision_of_their_own(precision) -> None:
    """Lavin & Gray's fp16 column: predicted to lose what rounding y loses, and no more."""
    storage = precision.partition("_")[0]
    for algorithm in (None, "winograd:2x2:3x3"):
        p = planner.plan(asked(algorithm=algorithm, precision=precision))
        assert isinstance(p, Fused2dPlan)
        assert (p.precision, p.simulated) == (precision, f"fp32,storage={storage}")
        wide = planner.plan(asked(algorithm=algorithm, precision=precision, out_dtype="float32"))
        assert wide.out_dtype == "float32"
        fp32 = planner.plan(asked(algorithm="winograd:2x2:3x3"))
        assert predicted_rms(wide) == pytest.approx(predicted_rms(fp32), rel=1e-6)
        rounded = predicted_rms(p) ** 2 - predicted_rms(wide) ** 2
        unit = FORMATS[storage].unit_roundoff
        assert rounded == pytest.approx(CONSTANT * unit**2, rel=1e-6)
    with pytest.raises(ValueError, match="two dimensions and 3 × 3 taps"):
        planner.plan(asked(Problem.of((2, 9, 9, 4), (4, 5, 5, 4)), None, precision=precision))
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype("f2") for s in ((1, 6, 6, 8), (4, 3, 3, 8)))
    how: dict[str, Any] = {"padding": 1, "algorithm": "winograd:2x2:3x3"}
    fp32 = winolab.conv_forward(x.astype("f4"), w.astype("f4"), **how)
    assert (winolab.conv_forward(x, w, precision="fp16_ffma", **how) == fp32.astype("f2")).all()


def test_filter_gradients_by_name() -> None:
    """Lavin & Gray's section 4.2; what other families do not serve they say."""
    name, direction = "winograd:3x3:2x2", "backward_filter"
    p = planner.plan(asked(LAYER, name, direction))
    assert isinstance(p, Fused2dPlan)
    assert (p.kernel, str(p.algorithm)) == ("F(3×3,2×2)", name)
    assert p.split_k > 1
    assert p.terms == 64 * 28 * 28
    assert [s.products * p.split_k for s in p.sums] == [p.terms]
    assert p.predicted == pytest.approx(sum(spent(p).values()))
    assert 0.5e-7 < predicted_rms(p) < 2e-6
    assert planner.plan(asked(LAYER, None, direction)).kernel != p.kernel
    boxes = Config(fused=True, images=32, rows=1, columns=1)
    for config in (Config(), Config(fused=True, order="chwn"), boxes):
        with pytest.raises(ValueError, match="fused=True, NHWC, no boxes"):
            list(plans(asked(LAYER, name, direction, config=config)))
    with pytest.raises(ValueError, match="two dimensions and 3 × 3 taps"):
        list(plans(asked(Problem.of((2, 9, 9, 4), (4, 2, 2, 4)), name, direction)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split_k": -1}, "expected 1 or more parts"),
        ({"bm": 48}, "64 or 32 output channels"),
        ({"order": "hwcn"}, "expected one of nhwc, nchw, chwn"),
        ({"images": 2, "rows": 2, "columns": 2}, "a block has 32"),
        ({"rows": 32}, "a block has 32"),
        ({"layout": "best"}, "no layout 'best'"),
        ({"buffers": 3}, "expected 1 or 2"),
        ({"u_stages": 1}, "expected 2 or more"),
    ],
)
def test_policies_that_there_are_not(fields, message) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**fields)


def test_text_names_what_is_not_usual() -> None:
    assert str(Config()) == "64x32x8 channels stages=3+2"
    text = str(narrow(layout="yan", fused=True, order="chwn", images=32, rows=1, columns=1))
    assert text == "32x32x8 yan stages=3+2 fused=1 order=chwn images=32 rows=1 columns=1 teams=2"


@pytest.mark.parametrize("ends", [(0, 2), (2, 0), (1, 1), (1, -1)])
def test_padding_of_a_depth_makes_a_third_dimension(ends: tuple[int, int]) -> None:
    """x has one depth and y several, or y that of the padding: results were left out."""
    flat = Problem.of((2, 1, 6, 7, 8), (8, 1, 3, 3, 8), padding=((0, 0), (1, 1), (1, 1)))
    assert list(plans(Request(flat, "forward", H100, None, "fp32")))
    deep = replace(flat, padding=(ends, *flat.padding[1:]))
    with pytest.raises(ValueError, match="two dimensions and 3 × 3 taps"):
        list(plans(Request(deep, "forward", H100, None, "fp32")))
