"""Predicted errors: of filter gradients against what their kernels' source errs on the CPU."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.harness.tables import stored
from tests.gpu import hosted
from tests.gpu.guarded import UNIFORM
from tests.gpu.support.gradients import shared
from tests.gpu.support.halves import DTYPES
from winolab.algorithm import Problem, Tile, direct, parse_algorithm, tiled
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.planner.accuracy import correlation_rms, predicted_rms
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import NORMAL, predict
from winolab.ref.error.predict import CONSTANT

# Times that errors are off the prediction: of 16 bits that are multiplied as they lie, truncating
# loses up to a third more, which shows where results are in FP32.
OFF, TRUNCATED = 1.1, 1.4
OMEGAS = ("direct", "omega:4:3:2", "omega:8:3:6", "omega:16:9:8")


def planned(family: str, precision: str, text: str = "direct", **options: Any) -> Any:
    """The fastest plan of a family, for up to 2,304 products a weight, and some padding."""
    algorithm = parse_algorithm(text)
    taps = algorithm.tiles[0].n if algorithm.tiles else 3
    problem = Problem.of((8, 12, 24, 16), (64, 2, taps, 16), padding=((0, 1), (taps // 2,) * 2))
    request = Request(
        problem, "backward_filter", H100, algorithm, precision,
        out_dtype=options.pop("out_dtype", "float32"),
    )  # fmt: skip
    (offered,) = (f for f in FAMILIES if f.name == family)
    found: Any = min(offered.plans(request), key=lambda p: p.predicted)
    return replace(found, **options)


def _parts(p: Plan) -> int:
    return getattr(p.primary.config, "split_k", 1)


def off(p: Any) -> float:
    """Times the prediction that a plan's error is, or the other way round."""
    rng = np.random.default_rng(0)
    shapes, kind = (p.problem.x_shape, p.problem.y_shape), DTYPES.get(p.precision, "f4")
    x, dy = (rng.uniform(-1, 1, shape).astype(kind) for shape in shapes)
    dw = hosted.execute(p, x, dy, dtype=p.out_dtype)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), p.problem)
    ratio = relative_rms(dw, exact) / predicted_rms(p, UNIFORM)
    return max(ratio, 1 / ratio)


@pytest.mark.parametrize("text", OMEGAS)
@pytest.mark.parametrize("fold", [16, 2048])
def test_sums_on_ffma_units(text, fold) -> None:
    """Short ones, whose outputs are added up, err up to four times less."""
    assert off(planned("wgrad_ffma", "fp32", text, segments=1, fold=fold)) <= OFF


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize(
    ("precision", "text"),
    [
        *(("fp32_split", text) for text in ("direct", "omega:8:3:6", "omega:16:9:8")),
        ("fp16", "omega:8:3:6"),
        ("bf16", "omega:16:9:8"),
    ],
)
def test_transformed_apart(precision, text, segments) -> None:
    assert off(planned("wgrad_winograd", precision, text, segments=segments)) <= OFF


@pytest.mark.parametrize(
    ("precision", "text"),
    [
        ("fp16", "omega:4:3:2"),
        ("bf16", "omega:8:3:6;segments=3"),
        ("fp16", "omega:8:5:4"),
        ("fp16", "omega:16:9:8"),
        ("fp16", "omega:8:3:6;variant=fused:fp16"),
    ],
)
def test_transformed_inside_the_block(precision, text) -> None:
    """Transformed operands are rounded to 16 bits, and sums in FP16 once a chunk."""
    assert off(planned("wgrad_mma", precision, text)) <= OFF


@pytest.mark.parametrize("sharing", [0, -3])
@pytest.mark.parametrize(
    ("family", "precision", "out_dtype", "most"),
    [
        ("wgrad_direct.columns", "fp16", "float16", OFF),
        ("wgrad_direct.columns", "bf16", "float32", TRUNCATED),
        ("wgrad_direct.split", "fp32_split", "float32", OFF),
    ],
)
def test_by_columns(family, precision, out_dtype, most, sharing) -> None:
    """By blocks alone, and by three a work tile."""
    assert off(shared(planned(family, precision, out_dtype=out_dtype), 4, sharing)) <= most


@pytest.mark.parametrize(("out_dtype", "most"), [("float16", OFF), ("float32", TRUNCATED)])
@pytest.mark.parametrize("segments", [1, 4])
def test_end_to_end_by_two_warpgroups(segments, out_dtype, most) -> None:
    """Three taps, each summed by halves of the positions."""
    p = planned("wgrad_direct.narrow", "fp16", out_dtype=out_dtype, segments=segments)
    p = replace(p, workspace=4 * segments * math.prod(p.problem.w_shape))
    assert p.config.n == 3
    assert off(p) <= most


def test_what_a_sum_is_cut_into_tells() -> None:
    """16 bits and FP32, as the reference has two levels of sums."""
    p = planned("wgrad_ffma", "fp32", segments=1, fold=64)
    (found,) = p.sums
    terms = round(found.products * found.count)
    layer = Problem.of((1, 1, terms), (1, 1, terms))
    run = arithmetic("fp32,accumulation=two_level:64")
    expected = predict(NORMAL, NORMAL, layer, direct(), run).relative_rms
    assert predicted_rms(p) == pytest.approx(expected, rel=0.03)
    whole = replace(p, fold=1 << 20)
    assert predicted_rms(whole) > 2 * predicted_rms(p)


def test_the_result_is_rounded_to_its_type() -> None:
    wide = planned("wgrad_winograd", "fp16", "omega:8:3:6")
    narrow = replace(wide, out_dtype="float16")
    added = predicted_rms(narrow) ** 2 - predicted_rms(wide) ** 2
    assert math.sqrt(added) == pytest.approx(math.sqrt(CONSTANT) * 2.0**-11, rel=1e-6)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_correlations_sum_the_channels_that_they_read(direction) -> None:
    """Nine taps in pieces of three are three times the channels."""

    def of(channels: int, taps: int) -> float:
        ends = (channels, 64) if direction == "forward" else (64, channels)
        problem = Problem.of(
            (2, 24, 24, ends[0]), (ends[1], 3, taps, ends[0]), padding=(1, taps // 2)
        )
        asked = Request(problem, direction, H100, parse_algorithm("gamma:8:6:3"), "fp32_ffma")
        return predicted_rms(next(p for p in candidates(asked).plans if _parts(p) == 1))

    assert of(64, 9) == of(192, 3)
    assert of(256, 3) == pytest.approx(2 * of(64, 3), rel=0.05)


def test_parts_of_a_correlation_s_sum_err_as_kept_rows_do() -> None:
    """Sums of an eighth of the channels each: a sum in one would err 2.6 times as much."""
    found: dict[int, list[float]] = {}
    for row in stored("fused2d"):
        parts = re.search(r" split_k=(\d+)", str(row.get("plan")))
        if not parts or row["kernel"] != "F(2×2,3×3)" or row["products"] != "fp32":
            continue
        if row["direction"] != "forward":
            continue
        shapes = (tuple(map(int, row[of].split("x"))) for of in ("input", "filter"))
        problem, split = Problem.of(*shapes, padding=1), ((1.0, int(parts[1])),)
        expected = correlation_rms(
            problem, "forward", (Tile(2, 3),) * 2, "best", "fp32", "float32", UNIFORM, split
        )
        found.setdefault(int(parts[1]), []).append(row["relative_rms_u11"] / expected)
    assert found.keys() >= {2, 4, 8}
    for ratios in found.values():
        assert min(ratios) >= 1 / OFF
        assert max(ratios) <= OFF


@pytest.mark.parametrize(
    ("text", "precision", "share"),
    [
        ("winograd:2x2:3x3", "fp32", 1.0),
        ("gamma:6:4:3", "fp32_split", 1.0),
        ("gamma:8:6:3", "fp32_ffma", None),  # the work tiles of the last round
    ],
)
def test_a_plan_tells_the_parts_that_its_blocks_sum(text, precision, share) -> None:
    """Whatever sums in parts is said to err less than the same work tiles whole."""
    problem = Problem.of((1, 14, 14, 256), (256, 3, 3, 256), padding=1)
    asked = Request(problem, "forward", H100, parse_algorithm(text), precision)
    p = min(
        (p for p in candidates(asked).plans if _parts(p) > 1),
        key=lambda p: p.predicted,
    ).primary
    assert sum(part for part, _ in p.split_sums) == pytest.approx(1.0)
    assert p.split_sums[-1][1] == _parts(p)
    assert share in (None, p.split_sums[-1][0])
    whole = correlation_rms(problem, "forward", p.tiles, p.points, p.simulated, p.out_dtype)
    assert predicted_rms(p) < whole
    split = correlation_rms(
        problem, "forward", p.tiles, p.points, p.simulated, p.out_dtype, NORMAL, p.split_sums
    )
    assert predicted_rms(p) == split


@pytest.mark.parametrize("tiles", [(Tile(6, 3),), (Tile(4, 3), Tile(6, 3)), ()])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_a_map_of_whole_tiles_errs_as_the_reference_says(tiles, padding) -> None:
    """At its edges a sum has fewer products; backward data is padded by what taps are left."""
    results, run = (8, 12), arithmetic("fp32")
    algorithm = tiled(tiles, "best")
    read = [size + 2 - 2 * padding for size in results]
    forward = Problem.of((2, *read, 64), (32, 3, 3, 64), padding=padding)
    backward = Problem.of((2, *results, 32), (64, 3, 3, 32), padding=2 - padding)
    expected = predict(NORMAL, NORMAL, forward, algorithm, run).relative_rms
    expected = math.hypot(expected, math.sqrt(CONSTANT) * 2.0**-24)
    for problem, direction in ((forward, "forward"), (backward, "backward_data")):
        found = correlation_rms(problem, direction, tiles, "best", "fp32", "float32")
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "fp32_split", "fp16", "bf16"])
def test_every_plan_of_a_gradient_has_a_prediction(precision) -> None:
    """Also what falls back; its share of weights is whole."""
    problem = Problem.of((32, 28, 28, 128), (128, 3, 3, 128), padding=1)
    for p in candidates(Request(problem, "backward_filter", H100, None, precision)).plans:
        found: Any = p.primary
        assert sum(s.fraction for s in found.sums) == pytest.approx(1)
        assert all(s.products >= 1 and s.count >= 1 for s in found.sums)
        assert 1e-8 < predicted_rms(p) < 0.05


def test_long_filters_of_data_gradients_have_an_error() -> None:
    """Padding of a data gradient is as long as the filter: more than callers may give, it raised
    where the plan was printed."""
    problem = Problem.of((1, 4200, 8), (8, 4100, 8))
    rms = correlation_rms(problem, "backward_data", (), "best", "fp32", "float32")
    assert 1e-7 < rms < 2.0**-24 * 4100  # eps times the length of sums
