"""Images far apart in size: split products serve each by a scale of its own, exactly as safe."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu
from tests.gpu.support.turns import turns
from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families import scale
from winolab.gpu.families.direct import plan as direct_plan
from winolab.gpu.families.direct.config import Config
from winolab.gpu.families.gamma_wgmma import plan as gamma_wgmma
from winolab.gpu.families.nested import plan as nested
from winolab.gpu.planner.fallback import CorrelationWithFallback, PlanWithFallback
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic

IMAGES = 6
SIZES = 2.0 ** np.array([0, -8, -16, -24, -32, -40])  # of images; above the margin apart
NEAR = 2.0 ** np.array([0, -1, -2, -3, 0, -2])  # and within
FLOOR = 10 * 2**-24  # relative RMS: what products of 22 bits have
NINE = "0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
MAP = (IMAGES, 7, 9)


def direct_split(direction: str, taps: int, stride: int) -> Plan:
    """Boxes of several images; for one tap of unit stride, all positions in a row."""
    problem = Problem.of((*MAP, 24), (40, taps, taps, 24), stride=stride, padding=taps // 2)
    config = Config(128, 64, 3, 4)
    asked = Request(problem, direction, H100, None, "fp32_split", config=config)
    return next(iter(direct_plan.split_plans(asked)))


def gamma(direction: str, tile: str, channels: int, **has: Any) -> Plan:
    problem = Problem.of((*MAP, channels), (20, 3, 3, channels), padding=1)
    asked = Request(
        problem, direction, H100, parse_algorithm(tile), "fp32_split", aligned=channels % 4 == 0
    )
    return next(
        p
        for p in gamma_wgmma.plans(asked)
        if all(getattr(p.config, name) == value for name, value in has.items())
    )


def nested_of(direction: str, tile: str) -> Plan:
    problem = Problem.of((*MAP, 20), (24, 3, 3, 20), padding=1)
    asked = Request(problem, direction, H100, parse_algorithm(tile), "fp32_split")
    return next(iter(nested.plans(asked)))


CASES = {
    "direct, stride 2": lambda: direct_split("forward", 3, 2),
    "direct, back from stride 2": lambda: direct_split("backward_data", 3, 2),
    "direct, back": lambda: direct_split("backward_data", 3, 1),
    "direct, one row": lambda: direct_split("forward", 1, 1),
    "Γ, tiles as rows": lambda: gamma(
        "backward_data", "gamma:6:4:3", 24, share=3, rows=8, packed=0
    ),
    "Γ, boxes of images": lambda: gamma(
        "forward", "gamma:6:4:3", 24, share=3, rows=4, images=2, packed=0
    ),
    "Γ, few rows": lambda: gamma("forward", "gamma:8:6:3", 24, rows=1, packed=0),
    "Γ, channels as rows": lambda: gamma("forward", "gamma:8:6:3", 24, u_ring=0, packed=0),
    "Γ, shared sums": lambda: gamma("forward", "gamma:8:6:3", 40, split_k=2, packed=0),
    "Γ, odd channels": lambda: gamma("forward", "gamma:4:2:3", 21, run=0),
    "Γ, padded channels": lambda: gamma("forward", "gamma:6:4:3", 21, padded=1, packed=0),
    "nested": lambda: nested_of("backward_data", "winograd:4x4:3x3"),
    "nested, staged": lambda: nested_of("forward", f"winograd:6x6:3x3@{NINE}"),
}
each = pytest.mark.parametrize("name", CASES)


@cache
def made(name: str) -> tuple[Any, dict[str, Any]]:
    plan = CASES[name]()
    return plan, hosted.loaded(plan)


def data(plan: Plan, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = plan.problem
    rng = np.random.default_rng(7)
    shape = p.x_shape if plan.direction == "forward" else p.y_shape
    a, b = (rng.standard_normal(s).astype("float32") for s in (shape, p.w_shape))
    return a * sizes.astype("float32").reshape(-1, *[1] * (a.ndim - 1)), b


def run(name: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """What the split products make of them, and the flags."""
    plan, kernels = made(name)
    left = np.zeros(4 * CorrelationWithFallback.flags, "uint8")
    y = hosted.execute(plan, a, b, kernels=kernels, left=left)
    return y, left.view("int32").tolist()


def exact(plan: Plan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return getattr(convolution, plan.direction)(a.astype(float), b.astype(float), plan.problem)


def worse(plan: Plan, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> Iterator[int]:
    """Images that err more than twice what sums in order do, and than products of 22 bits."""
    true = exact(plan, a, b)
    in_order = getattr(winograd, plan.direction)(a, b, plan.problem, direct(), arithmetic("fp32"))
    for image, (found, other, right) in enumerate(zip(y, in_order, true, strict=True)):
        own, limit, size = (
            np.sqrt(np.mean(v.astype(float) ** 2)) for v in (found - right, other - right, right)
        )
        if not own <= max(2 * limit, FLOOR * size):
            yield image


def as_before(monkeypatch: pytest.MonkeyPatch, a: np.ndarray) -> None:
    """One scale for all images, which the sample of so small a tensor finds."""
    bits = int(np.abs(a[np.isfinite(a)]).max().view("int32"))
    monkeypatch.setattr(scale, "known", lambda *_: (bits, 0.0))


@each
def test_images_far_apart_lose_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """2^0 to 2^-40: no flag is set, so that no fallback runs; one scale for all loses them."""
    plan, _ = made(name)
    a, b = data(plan, SIZES)
    y, flags = run(name, a, b)
    assert not any(flags)
    assert not list(worse(plan, a, b, y))
    as_before(monkeypatch, a)
    lost, before = run(name, a, b)
    assert before[0] or before[3]
    assert list(worse(plan, a, b, lost))


@each
def test_images_of_one_distribution_keep_their_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = made(name)
    a, b = data(plan, NEAR)
    y, flags = run(name, a, b)
    as_before(monkeypatch, a)
    before, others = run(name, a, b)
    assert flags == others
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize(("name", "value"), turns(CASES, [np.nan, np.inf]))
def test_what_is_not_finite_stays_in_its_image(name: str, value: float) -> None:
    plan, _ = made(name)
    a, b = data(plan, SIZES)
    a[2, a.shape[1] // 2, 4, 5] = value
    y, flags = run(name, a, b)
    assert flags[0] or flags[3]  # which the fallback would see to
    others = [i for i in range(IMAGES) if i != 2]
    assert np.isfinite(y[others]).all()
    assert not np.isfinite(y[2]).all()
    a[2] = 0
    y[2] = 0
    assert set(worse(plan, a, b, y)) <= {2}


@each
def test_zeros_beside_tiny_images_hide_no_number(name: str) -> None:
    """Results of 0 ask whether numbers vanished: none does, by its image's scale."""
    plan, _ = made(name)
    sizes = SIZES.copy()
    sizes[3] = 0
    a, b = data(plan, sizes)
    y, (lost, zero, tiny, confirmed) = run(name, a, b)
    assert zero
    assert not lost
    assert not tiny
    assert not confirmed
    assert not y[3].any()


@each
def test_what_an_image_loses_is_found_out(name: str) -> None:
    """A channel that no output reads keeps the size of an image, of which the others are small."""
    plan, _ = made(name)
    a, b = data(plan, SIZES)
    a[1, ..., 1:] *= np.float32(2.0**-30)
    b.reshape(-1, b.shape[-1])[:, 0] = 0
    if plan.direction == "backward_data":
        a, b = data(plan, SIZES)
        a[1, ..., 1:] *= np.float32(2.0**-30)
        b[0] = 0
    _, (lost, _, _, confirmed) = run(name, a, b)
    assert lost or confirmed


def test_packed_images_have_one_scale() -> None:
    """Rows of a block go on from image to image there: what is lost is found out."""
    problem = Problem.of((8, 13, 13, 16), (16, 3, 3, 16), padding=1)
    asked = Request(problem, "forward", H100, parse_algorithm("gamma:6:4:3"), "fp32_split")
    plan = next(p for p in gamma_wgmma.plans(asked) if p.config.packed)
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(s).astype("float32") for s in (problem.x_shape, problem.w_shape))
    left = np.zeros(4 * CorrelationWithFallback.flags, "uint8")
    hosted.execute(plan, a, b, left=left)
    assert not left.view("int32").any()
    a[3] *= np.float32(2.0**-24)
    hosted.execute(plan, a, b, left=left)
    assert left.view("int32")[[0, 3]].any()


@pytest.mark.parametrize(("image", "loses"), [(scale.PEAKS - 1, False), (scale.PEAKS, True)])
def test_only_the_first_images_have_scales(image: int, loses: bool) -> None:
    problem = Problem.of((scale.PEAKS + 2, 2, 3, 32), (32, 1, 1, 32))
    asked = Request(problem, "forward", H100, None, "fp32_split", config=Config(128, 32, 9, 9))
    plan = next(iter(direct_plan.split_plans(asked)))
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(s).astype("float32") for s in (problem.x_shape, problem.w_shape))
    left = np.zeros(4 * CorrelationWithFallback.flags, "uint8")
    for size, expected in ((1.0, False), (2.0**-30, loses)):
        a[image] *= np.float32(size)
        hosted.execute(plan, a, b, left=left)
        assert bool(left.view("int32")[[0, 3]].any()) == expected


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("direction", "taps", "stride"),
    [("backward_data", 3, 1), ("backward_data", 3, 2), ("forward", 1, 1)],
)
def test_images_far_apart_lose_nothing_on_a_gpu(direction: str, taps: int, stride: int) -> None:
    """By the fastest plan of each kernel, and of those of them that share sums: images of 2^0 to
    2^-40 set no flag, and one that is not finite leaves others as they are."""
    problem = Problem.of((12, 16, 16, 64), (64, taps, taps, 64), stride=stride, padding=taps // 2)
    every = candidates(Request(problem, direction, driver.device(0), None, "fp32_split")).plans
    plans: dict[Any, PlanWithFallback] = {}
    for p in every:
        if isinstance(p, PlanWithFallback) and not getattr(p.config, "packed", 0):
            plans.setdefault((type(p.primary), getattr(p.config, "split_k", 1) > 1), p)
    assert plans
    for plan in plans.values():
        a, b = data(plan, np.tile(SIZES, 2))
        left = np.zeros(4 * CorrelationWithFallback.flags, "uint8")
        y = on_gpu(plan, a, b, left)
        assert not left.view("int32").any(), plan
        assert not list(worse(plan, a, b, y)), plan
        a[2, 3, 4, 5] = np.nan
        y = on_gpu(plan, a, b)
        assert np.isfinite(y[[i for i in range(12) if i != 2]]).all(), plan
        assert not np.isfinite(y[2]).all(), plan
