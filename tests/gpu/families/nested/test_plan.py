"""Nested Winograd on Tensor Cores: plans, and kernels' results against FP64 and the reference."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.algorithm import Problem, parse_algorithm
from winolab.arguments.tolerance import Tolerance
from winolab.bench.oracle import relative_rms
from winolab.device import H100, datasheet
from winolab.gpu.families.nested.config import KC
from winolab.gpu.families.nested.plan import NestedPlan, plans
from winolab.gpu.families.nested.tiles import multiplications
from winolab.gpu.families.nested.tiling import Tiling
from winolab.gpu.planner.accuracy import incurred
from winolab.gpu.planner.correlation import SCALING
from winolab.gpu.planner.fallback import FLAGS
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.planner import plan as choose
from winolab.gpu.planner.ranking import LOSES_LESS, WORTH, loss
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.arithmetic.split import Scale

OFF = 1.5  # times the predicted error: of few outputs, which share inputs


def _bound(plan: NestedPlan) -> float:
    """The relative RMS error's bound: the reference's prediction, beside that of sums in FP32."""
    products = plan.correlation.channels * math.prod(plan.correlation.filter)
    return OFF * loss(plan) * 0.30 * 2**-24 * math.sqrt(products)


def _plan(problem: Problem, direction: str, text: str, **options) -> NestedPlan:
    request = Request(problem, direction, H100, parse_algorithm(text), "fp32_split", **options)
    return min(plans(request), key=lambda p: p.predicted)


def _operands(problem: Problem, direction: str, scales=(1.0, 1.0)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a = rng.standard_normal(shape) * scales[0]
    b = rng.standard_normal(problem.w_shape) * scales[1]
    return a.astype("float32"), b.astype("float32")


def _exact(direction: str, a: np.ndarray, b: np.ndarray, problem: Problem) -> np.ndarray:
    compute = convolution.forward if direction == "forward" else convolution.backward_data
    return compute(a.astype("float64"), b.astype("float64"), problem)


SIX = "0,1,-1,2,-2,inf"
FORTH, BACK = "forward", "backward_data"
PARAMETERS = ("direction", "x_shape", "w_shape", "options", "text", "scales")
CASES = [
    # batch odd, last tile, row and channels of a block masked, two blocks of tiles
    (FORTH, (3, 9, 13, 20), (68, 3, 3, 20), {"padding": 1}, "winograd:4x4:3x3", (1e-20, 1e15)),
    (BACK, (1, 9, 13, 20), (36, 3, 3, 20), {"padding": 1}, "winograd:2x2:3x3", (1e15, 1e-20)),
    # tiles that differ along the dimensions, groups
    (FORTH, (2, 6, 9, 16), (8, 3, 5, 8), {"groups": 2}, "winograd:4x2:3x5", (1e30, 1e-38)),
    # points of one tile, whose other takes its own best
    (FORTH, (1, 9, 8, 8), (8, 3, 3, 8), {"padding": 1}, f"winograd:4x2:3x3@{SIX}", (1, 1)),
    # pieces, which share tiles of the input, filled up with taps of zeros
    (FORTH, (2, 9, 10, 36), (6, 7, 7, 36), {"padding": 3}, "winograd:4x4:4x4", (1, 1)),
    (BACK, (1, 7, 11, 6), (34, 5, 9, 6), {"padding": (1, 4)}, "winograd:2x3:2x3", (1, 1)),
    # channels that no vector divides, padding that is negative for backward data
    (FORTH, (1, 8, 9, 7), (5, 3, 3, 7), {"padding": 1}, "winograd:4x4:3x3", (1, 1)),
    (BACK, (1, 12, 9, 7), (5, 2, 2, 7), {"padding": 3}, "winograd:5x4:2x2", (1, 1)),
    (FORTH, (1, 8, 9, 8), (8, 3, 3, 8), {"padding": 1}, "winograd:4x4:3x3", (1, 0)),
]  # fmt: skip


@pytest.mark.parametrize(PARAMETERS, CASES)
def test_on_the_cpu(direction, x_shape, w_shape, options, text, scales) -> None:
    problem = Problem.of(x_shape, w_shape, **options)
    plan = _plan(problem, direction, text)
    a, b = _operands(problem, direction, scales)
    left = np.zeros(FLAGS // 4, "int32").view("uint8")
    got, exact = hosted.execute(plan, a, b, left=left), _exact(direction, a, b, problem)
    if scales[1]:
        assert relative_rms(got, exact) <= _bound(plan)
        assert scales[1] < 1e-30 or not left.view("int32")[0]  # subnormal: in doubt
    else:
        assert not got.any()


@pytest.mark.parametrize(
    ("direction", "x_shape", "w_shape", "options", "text", "scales"), CASES[:6]
)
def test_every_bit_is_the_references(direction, x_shape, w_shape, options, text, scales) -> None:
    problem = Problem.of(x_shape, w_shape, **options)
    plan = _plan(problem, direction, text).scaled(Scale.of_caller("10:11"))
    a, b = _operands(problem, direction)
    compute = getattr(winograd, direction)
    order = Order(KC["fp32_split"], padded=True)
    chosen = parse_algorithm(f"{text};scaling={SCALING}")
    run = arithmetic(plan.simulated)
    expected = compute(a, b, problem, chosen, run, programs_of(chosen), order)
    assert (hosted.execute(plan, a, b) == expected).all()


def test_parts_of_the_batch_keep_to_a_limit_and_every_bit() -> None:
    problem = Problem.of((5, 9, 9, 20), (12, 3, 3, 20), padding=1)
    whole = _plan(problem, "forward", "winograd:4x4:3x3")
    limit = whole.workspace - 1
    plan = _plan(problem, "forward", "winograd:4x4:3x3", workspace_limit=limit)
    assert len(plan.batches) > 1
    assert plan.workspace <= limit
    a, b = _operands(problem, "forward")
    assert (hosted.execute(plan, a, b) == hosted.execute(whole, a, b)).all()


def test_planning_does_not_go_through_a_large_batch(monkeypatch) -> None:
    """It took 49 s: the blocks of every launch, in every plan tried."""
    counted = []
    box = Tiling.box
    monkeypatch.setattr(Tiling, "box", lambda self, n: counted.append(n) or box(self, n))
    problem = Problem.of((65535, 4, 4, 64), (64, 3, 3, 64), padding=1)
    plan = _plan(problem, "forward", "winograd:4x4:3x3", workspace_limit=2 << 20)
    told = str(plan)
    assert len(counted) < 1000
    batches = plan.batches
    assert f"batches    {len(batches)} of" in told
    assert len(batches) > 3  # first, others alike, and one of fewer
    each = [len(batch) for batch in batches]
    assert [n for count, n in plan.alike for _ in range(count)] == each


def test_pieces_without_their_last_tap_have_no_state_at_infinity() -> None:
    """7 taps by F(4,4): 4 + 3, of which the second piece is an F(4,3)."""
    problem = Problem.of((1, 8, 8, 4), (16, 7, 7, 4), padding=3)
    plan = _plan(problem, "forward", "winograd:4x4:4x4")
    assert plan.short == (True, True)
    assert multiplications(plan.tiles, (7, 7)) == (7 + 6) ** 2 / 16
    assert plan.mean_steps == pytest.approx((7 + 6) ** 2 / 49)
    words = hosted.prepared(plan, _operands(problem, "forward")[1])
    u = words[-plan.transformed // 4 :].reshape(7, 7, 2, 2, -1)  # states, pieces, words
    unwritten = (u == 0xFFFFFFFF).all(-1)
    expected = np.zeros_like(unwritten)
    expected[6, :, 1], expected[:, 6, :, 1] = True, True
    assert (unwritten == expected).all()
    whole = Problem.of((1, 8, 8, 4), (16, 8, 4, 4), padding=3)
    assert _plan(whole, "forward", "winograd:4x4:4x4").short == (False, False)


def test_filters_of_neighbouring_rows_are_described_alike() -> None:
    """Backward data, whose rows lie side by side in memory, against forward on the same taps."""
    forth = Problem.of((1, 6, 6, 20), (36, 3, 3, 20), padding=1)
    back = Problem.of((1, 6, 6, 36), (20, 3, 3, 36), padding=1)
    w = _operands(forth, "forward")[1]
    rotated = np.ascontiguousarray(w[:, ::-1, ::-1].transpose(3, 1, 2, 0))
    plans_ = [_plan(forth, "forward", "winograd:2x2:3x3"), _plan(back, BACK, "winograd:2x2:3x3")]
    made = [hosted.prepared(p, b) for p, b in zip(plans_, (w, rotated), strict=True)]
    rows = [words[: 4 * plan.outputs].view("float32").reshape(-1, 4)
            for plan, words in zip(plans_, made, strict=True)]  # fmt: skip
    u = [words[-plan.sizes["u"] // 4 :] for plan, words in zip(plans_, made, strict=True)]
    assert (u[0] == u[1]).all()
    assert (rows[0][:36, (0, 1, 3)] == rows[1][:36, (0, 1, 3)]).all()
    assert rows[0][:36, 2] == pytest.approx(rows[1][:36, 2], rel=1e-5)  # sums in another order


def test_a_large_workspace_has_to_be_worth_it() -> None:
    """7 × 7 at 26² × 320 is 1.7 times as fast with it, 3 × 3 at 48² × 128 slower."""
    for size, filter_size, chosen in ((26, 7, "F("), (48, 3, "Γ")):
        channels = 320 if size == 26 else 128
        problem = Problem.of(
            (32, size, size, channels), (channels, filter_size, filter_size, channels),
            padding=filter_size // 2,
        )  # fmt: skip
        request = Request(problem, "forward", H100, None, "fp32")
        found = choose(request)
        assert found.kernel.startswith(chosen)
        assert loss(found) <= LOSES_LESS
        lean = choose(replace(request, workspace_limit=request.data_size))
        assert lean.workspace <= request.data_size
        costly = [p for p in candidates(request).plans if p.beside > request.data_size]
        assert all(p.predicted <= WORTH * lean.predicted for p in costly[:1]) == (chosen == "F(")


def test_what_nobody_names_in_16_bits_errs_four_times_direct_at_most() -> None:
    """A decoder's layer; what errs more than "direct:4" admits is taken where it is named, or by
    a tolerance in numbers."""
    shapes = (1, 5, 60, 104, 384), (384, 3, 3, 3, 384)
    problem = Problem.of(*shapes, padding=((2, 0), 1, 1))
    request = Request(problem, "forward", datasheet("h200"), None, "bf16")
    limited = replace(request, tolerance=Tolerance.of("direct:4"))
    for asked in (request, limited):
        assert isinstance(found := choose(asked), NestedPlan)
        assert incurred("direct", found) <= 4
    faster = choose(replace(request, tolerance=Tolerance.of(2e-2)))
    assert isinstance(faster, NestedPlan)
    assert faster.predicted < found.predicted
    assert incurred("direct", faster) > 4


def test_the_planner_knows_moduli() -> None:
    """9 × 9 taps by F(8×8,9×9) in 19 × 19 states."""
    problem = Problem.of((32, 32, 32, 256), (256, 9, 9, 256), padding=4)
    found = choose(Request(problem, "forward", H100, None, "fp32"))
    assert found.kernel == "F(8×8,9×9;19×19)"
    assert loss(found) <= LOSES_LESS


def test_refusals_say_what_to_do() -> None:
    problem = Problem.of((1, 9, 9, 8), (8, 3, 3, 8))
    for text, message in (
        ("winograd:4x4:5x5", "no CUDA kernel has .* for 3 taps"),
        ("winograd:4:3", "two dimensions"),
        ("winograd:23x2:3x3", "no CUDA kernel has"),
        ("winograd:4x4:3x3;scaling=l1", "without scaling"),
    ):
        with pytest.raises(ValueError, match=message):
            _plan(problem, "forward", text)
    with pytest.raises(ValueError, match="two dimensions"):
        _plan(Problem.of((1, 9, 8), (8, 3, 8)), "forward", "winograd:4x4:3x3")
    for points in ("", "@0,1,-1,inf"):
        deep, text = Problem.of((1, 5, 9, 9, 8), (8, 3, 3, 3, 8)), f"1x2x2:1x3x3{points}"
        with pytest.raises(ValueError, match=rf"the depth's taps; use winograd:{text}$"):
            _plan(deep, "forward", f"winograd:2x2x2:3x3x3{points}")
        assert _plan(deep, "forward", f"winograd:{text}").kernel == "F(1×2×2,1×3×3)"
    with pytest.raises(ValueError, match="limit is 5 B: raise it, or use gamma") as refused:
        _plan(problem, "forward", "winograd:4x4:3x3", workspace_limit=5)
    (least,) = map(int, re.findall(r"needs a workspace of (\d+) B at least", str(refused.value)))
    smallest = _plan(problem, "forward", "winograd:4x4:3x3", workspace_limit=least)
    assert smallest.workspace == least
    with pytest.raises(ValueError, match=f"a workspace of {least} B at least"):
        _plan(problem, "forward", "winograd:4x4:3x3", workspace_limit=least - 1)
    with pytest.raises(ValueError, match="count neither as many channels nor as large images"):
        _plan(Problem.of((1, 9, 9, 1 << 22), (8, 3, 3, 1 << 22)), "forward", "winograd:4x4:3x3")
    request = Request(problem, "forward", H100, parse_algorithm("gamma:8:6:3"), "fp32_split")
    assert not list(plans(request))  # whose family says what it lacks
    request = Request(problem, "forward", datasheet("a100"), None, "fp32_split")
    with pytest.raises(ValueError, match=r"compute capability 8\.0"):
        list(plans(request))


def test_compiles_without_spills_in_the_products(compiled) -> None:
    plan = _plan(
        Problem.of((1, 9, 9, 64), (512, 3, 3, 64), padding=1), "forward", "winograd:4x4:3x3"
    )
    resources = compiled(plan.source())
    assert {name: used.spills for name, used in resources.items()} == dict.fromkeys(resources, 0)
