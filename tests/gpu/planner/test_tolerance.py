"""A tolerance in the algorithm's place: the fastest plan that keeps to it, or what the least is."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.support.turns import turns
from winolab.arguments.tolerance import Tolerance
from winolab.device import H100
from winolab.gpu.planner.accuracy import direct_rms, incurred, predicted_rms
from winolab.gpu.planner.planner import candidates, plan, usual_limit
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime.array_layout import dense
from winolab.gpu.runtime.planned import request_of
from winolab.gpu.runtime.resolve import resolve
from winolab.options import ConvOptions
from winolab.problem import Problem, shapes
from winolab.ref.algorithms import convolution
from winolab.ref.tolerance.cheapest import SURE, U11
from winolab.ref.tolerance.normwise import products

LAYER = Problem.of((32, 56, 56, 64), (64, 3, 3, 64), padding=1)
DIRECTIONS = ("forward", "backward_data", "backward_filter")


def asked(direction: str, tolerance: Any, precision: str = "fp32", problem: Problem = LAYER):
    return Request(problem, direction, H100, precision=precision, tolerance=Tolerance.of(tolerance))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_fastest_plan_within_it_is_taken(direction, precision) -> None:
    every = candidates(Request(LAYER, direction, H100, precision=precision)).plans
    errors = {p: incurred("predicted", p) for p in every}
    assert all(error >= SURE * predicted_rms(p, U11) * (1 - 1e-9) for p, error in errors.items())
    for most in np.unique(np.quantile([*errors.values()], [0, 0.2, 0.6, 1])):
        taken = plan(asked(direction, float(most), precision))
        assert errors[taken] <= most
        assert taken.predicted == min(p.predicted for p, e in errors.items() if e <= most)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_componentwise_takes_direct_products(direction) -> None:
    taken = plan(asked(direction, "componentwise:1e-6"))
    assert all(tile.alpha == 1 for tile in taken.tiles)
    every = candidates(Request(LAYER, direction, H100)).plans
    direct = [p for p in every if all(tile.alpha == 1 for tile in p.tiles)]
    assert taken.predicted == min(p.predicted for p in direct)
    assert incurred("componentwise", taken) < 1e-7


@pytest.mark.parametrize("tolerance", [1e-12, "proven:1e-12", "componentwise:1e-12"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_least_that_can_be_had_can_be_had(direction, tolerance) -> None:
    with pytest.raises(
        ValueError, match=r"^tolerance \S*1e-12: the least that can be had in fp"
    ) as e:
        plan(asked(direction, tolerance))
    least = re.findall(r"is (\S+), by", str(e.value))[0]
    kind = str(tolerance).rpartition(":")[0]
    assert plan(asked(direction, f"{kind}:{least}" if kind else float(least)))


def test_transformed_gradients_have_no_proven_bound() -> None:
    taken = plan(asked("backward_filter", "proven:1"))
    assert all(tile.alpha == 1 for tile in taken.tiles)


@pytest.mark.parametrize("data", ["u11", "ones"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_kernels_err_less(direction, data) -> None:
    """On the CPU, their source; results are of few products, so that all of them is quick."""
    problem = Problem.of((2, 10, 12, 16), (16, 3, 3, 16), padding=1)
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype("f4") for s in shapes(direction, problem)[:2])
    if data == "ones":
        a[...], b[...] = 1.0, 1 / 3
    exact = getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
    for tolerance in (3e-6, "proven:1e-3"):
        request = Request(
            problem, direction, H100, precision="fp32_ffma", tolerance=Tolerance.of(tolerance)
        )
        taken = plan(request)
        error = hosted.execute(taken, a, b) - exact
        if isinstance(tolerance, float):
            assert np.linalg.norm(error) <= tolerance * np.linalg.norm(exact)
        peaks = float(np.abs(a).max()), float(np.abs(b).max())
        most = incurred("proven", taken) * products(problem, direction) * peaks[0] * peaks[1]
        assert np.abs(error).max() <= most


def test_a_call_asks_for_it() -> None:
    options = ConvOptions(precision="fp32", tolerance="componentwise:1e-6").checked()
    x, w = (dense(shape, "float32") for shape in (LAYER.x_shape, LAYER.w_shape))
    asked = resolve("forward", LAYER, options, x, w, None, meant=H100)
    request = request_of(asked, aligned=True)
    assert request.tolerance == Tolerance("componentwise", 1e-6)
    assert request == Request(
        LAYER, "forward", H100, out_dtype="float32", tolerance=request.tolerance
    )  # fmt: skip
    kept = plan(request, apart=True)
    assert all(tile.alpha == 1 for tile in kept.tiles)
    assert kept.prepared_size


def test_winolab_plan_says_it() -> None:
    how: dict[str, Any] = {"padding": 1, "precision": "fp16"}
    found = winolab.plan(LAYER.x_shape, LAYER.w_shape, tolerance=4e-4, **how)
    assert found.to_dict()["tolerance"] == "0.0004"
    assert found.chosen is not None
    assert all(tile.alpha == 1 for tile in found.chosen.tiles)
    loose = winolab.plan(LAYER.x_shape, LAYER.w_shape, tolerance=1e-2, **how)
    assert loose.chosen is not None
    assert any(tile.alpha > 1 for tile in loose.chosen.tiles)
    with pytest.raises(ValueError, match="both say how; give one of them"):
        winolab.plan(LAYER.x_shape, LAYER.w_shape, tolerance=1e-2, algorithm="direct", **how)


LAYERS = ((32, 14, 14, 256), 3), ((8, 28, 28, 128), 5), ((8, 28, 28, 128), 9)


@pytest.mark.parametrize(
    ("direction", "precision", "layer"), turns(DIRECTIONS, ["fp32", "fp16"], LAYERS, of=3)
)
def test_beside_direct_products_the_usual_choice_stays_where_it_errs_little(
    direction, precision, layer
) -> None:
    """Layers whose usual plan errs 1 to 10 times as much as direct products."""
    shape, taps = layer
    problem = Problem.of(shape, (shape[-1], taps, taps, shape[-1]), padding=taps // 2)
    usual = plan(Request(problem, direction, H100, precision=precision))
    times = incurred("direct", usual)
    assert times >= 1 - 1e-9 or not any(tile.alpha > 1 for tile in usual.tiles)
    taken = plan(asked(direction, f"direct:{1.01 * times}", precision, problem))
    assert taken == usual
    strict = plan(asked(direction, "direct:1.3", precision, problem))
    assert incurred("direct", strict) <= 1.3
    assert (strict == usual) == (times <= 1.3)
    if times > 1.3:  # of those that are admitted, ranked as ever
        request = Request(problem, direction, H100, precision=precision)
        limit = usual_limit(request) if direction == "backward_filter" else None
        limits = {None, limit}  # a gradient's plans within the usual workspace are others
        every = (candidates(replace(request, workspace_limit=n)).plans for n in limits)
        admitted = [p for p in chain(*every) if incurred("direct", p) <= 1.3]
        assert strict in admitted
        assert strict.predicted <= 1.16 * min(
            p.predicted for p in admitted if p.workspace <= strict.workspace
        )


def test_a_direct_plan_errs_as_direct_products_do() -> None:
    for direction in DIRECTIONS:
        taken = plan(asked(direction, "componentwise:1"))
        assert predicted_rms(taken, U11) == pytest.approx(direct_rms(taken, U11), rel=1e-9)
