"""Fused Ω in 16 bits, its source executed on the CPU against FP64, between zones of NaN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.wgrad_mma.operands import operands
from tests.gpu.guarded import MEAN, limits
from winolab.algorithm import Problem, parse_algorithm
from winolab.device import datasheet
from winolab.gpu import driver
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan, flat_plans
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.ref.algorithms import convolution

KERNELS = ("4:3:2", "8:3:6", "8:5:4", "8:7:2", "16:9:8", "16:7:10")
CASES = [
    *((k, "fp16", "h100", "fused") for k in KERNELS),
    *((k, "bf16", "h100", "fused") for k in KERNELS[::2]),
    *((k, "fp16", "a100", "fused") for k in KERNELS[::2]),
    *((k, "fp16", "h100", "fused:fp16") for k in KERNELS[1::3]),
]


def asked(text: str, precision: str, gpu: str, problem: Problem, **options) -> list[WgradMmaPlan]:
    """The plans of a gradient by that algorithm."""
    named, device = parse_algorithm(f"omega:{text}"), datasheet(gpu)
    options = {"out_dtype": "float32", **options}
    request = Request(problem, "backward_filter", device, named, precision, **options)
    return list(flat_plans(request))


def check(p: WgradMmaPlan, dtype: str = "float32", rounding: float = 0.0) -> None:
    """Errors are below the proven bound, and as large as predicted."""
    x, dy = operands(p.problem, p.precision)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), p.problem)
    error = np.abs(hosted.execute(p, x, dy, dtype=dtype).astype(float) - exact)
    proven, deviation, _ = limits(p)
    assert (error <= proven + rounding * np.abs(exact)).all()
    rms, rounded = (error**2).mean() ** 0.5, rounding * (exact**2).mean() ** 0.5
    assert deviation / MEAN <= rms <= MEAN * deviation + rounded


@pytest.mark.parametrize(("text", "precision", "gpu", "variant"), CASES)
def test_every_kernel_of_the_paper(text, precision, gpu, variant) -> None:
    """Two segments, one in dw itself; channels, taps and columns that fill no block."""
    taps = int(text.split(":")[1])
    problem = Problem.of((2, 4, 21, 24), (18, 3, taps, 24), padding=(1, taps // 2))
    p = asked(f"{text};segments=2;variant={variant}", precision, gpu, problem)[0]
    assert p.workspace == 4 * p.gradient.weights
    assert max(p.shared().values()) <= p.device.shared_memory
    check(p)


def test_units_run_on_channels_are_odd_and_results_have_16_bits() -> None:
    """Groups, three segments in buckets, a row's last unit that ends in the next."""
    problem = Problem.of((3, 5, 10, 70), (42, 2, 3, 35), padding=((1, 0), (1, 1)), groups=2)
    found = asked("8:3:6;segments=3;variant=fused", "fp16", "h100", problem, out_dtype="float16")
    p = next(p for p in found if p.config.wrap)
    assert (p.config.vector, p.config.dwvec) == (0, 1)
    assert p.workspace == 3 * 4 * p.gradient.weights
    check(p, "float16", 2.0**-11)


def test_padding_of_rows_changes_no_bit() -> None:
    problem = Problem.of((1, 3, 17, 40), (40, 1, 3, 40), padding=(0, 1))
    p = asked("8:3:6;variant=fused", "fp16", "h100", problem)[0]
    bare = replace(p, config=replace(p.config, pad=0))
    x, dy = operands(problem, "fp16")
    assert np.array_equal(hosted.execute(p, x, dy), hosted.execute(bare, x, dy))


def test_padding_of_staged_rows_changes_no_bit() -> None:
    """Ours, the paper's 64 bits, and none."""
    problem = Problem.of((1, 3, 17, 40), (40, 1, 3, 40), padding=(0, 1))
    p = asked("8:3:6;variant=fused", "fp16", "h100", problem)[0]
    x, dy = operands(problem, "fp16")
    for floats in (2, 0):
        other = replace(p, config=replace(p.config, staged=floats))
        assert max(other.shared().values()) < max(p.shared().values())
        assert np.array_equal(hosted.execute(p, x, dy), hosted.execute(other, x, dy))


def test_transforms_without_pairs_of_points_err_as_much() -> None:
    problem = Problem.of((2, 3, 20, 20), (16, 2, 9, 20), padding=(1, 4))
    p = asked("8:3:6;variant=fused", "fp16", "h100", problem)[0]
    alone = replace(p, config=replace(p.config, paired=0))
    assert alone.source() != p.source()
    check(alone)


@pytest.mark.parametrize(
    ("text", "precision"), [("4:3:2", "bf16"), ("8:3:6", "fp16"), ("16:9:8", "fp16")]
)
def test_transforms_of_pairs_in_16_bits(text, precision) -> None:
    """Each operation is rounded to 16 bits, and its errors are as large as predicted. Ω4(3,2) adds
    two numbers a state, which are rounded once either way."""
    problem = Problem.of((2, 3, 20, 20), (16, 2, 9, 20), padding=(1, 4))
    p = asked(f"{text};variant=fused", precision, "h100", problem)[0]
    half2 = replace(p, config=replace(p.config, half2=1))
    check(half2)
    assert (limits(half2)[1] > 1.01 * limits(p)[1]) == (text != "4:3:2")


AHEAD = (
    # a row's last unit that ends in the next; fewer units than steps ahead; blocks filled in part
    (2, "8:3:6;segments=3", (3, 5, 10, 80), 48, 2, "fp16", "h100"),
    (3, "8:5:4", (1, 2, 37, 64), 24, 1, "bf16", "h100"),
    (4, "4:3:2;segments=2", (2, 4, 21, 24), 136, 1, "fp16", "h100"),
    (1, "16:9:8", (2, 3, 40, 72), 40, 1, "fp16", "h100"),
    (1, "8:3:6", (2, 3, 20, 16), 8, 1, "fp16", "a100"),
)


@pytest.mark.parametrize(
    ("ahead", "text", "x", "out_channels", "groups", "precision", "gpu"), AHEAD
)
def test_columns_brought_ahead_change_no_bit(
    ahead, text, x, out_channels, groups, precision, gpu
) -> None:
    taps = int(text.split(":")[1])
    w = out_channels, 2, taps, x[-1] // groups
    problem = Problem.of(x, w, padding=((1, 0), (taps // 2, taps // 2)), groups=groups)
    found = asked(f"{text};variant=fused", precision, gpu, problem)
    p = next((p for p in found if p.config.wrap), found[0])
    config = replace(p.config, ahead=ahead, stages=2)
    named = parse_algorithm(f"omega:{text};variant=fused")
    request = Request(problem, "backward_filter", p.device, named, precision, out_dtype="float32")
    other = next(iter(flat_plans(replace(request, config=config))))
    assert other.config == replace(config, wrap=other.config.wrap, dwvec=other.config.dwvec)
    assert "copy_async_wait<PENDING>" in other.source()
    assert max(other.shared().values()) <= p.device.shared_memory
    x_, dy = operands(problem, precision)
    assert np.array_equal(hosted.execute(p, x_, dy), hosted.execute(other, x_, dy))


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["ahead=1", "ahead=2", "staged=0", "staged=2"])
@pytest.mark.parametrize("text", ["4:3:2", "8:3:6", "8:5:4", "8:7:2", "16:9:8"])
def test_policies_that_change_no_bit_on_the_device(text, policy) -> None:
    """Blocks walk over several work tiles; sums are of thousands of units, buckets poisoned."""
    cp, taps = driver.cupy(), int(text.split(":")[1])
    problem = Problem.of((16, 28, 28, 128), (128, taps, taps, 128), padding=taps // 2)
    named = parse_algorithm(f"omega:{text};segments=3;variant=fused")
    request = Request(problem, "backward_filter", driver.device(0), named, "fp16")
    plain = (p for p in flat_plans(request) if not p.config.ahead)
    usual = min(plain, key=lambda p: p.predicted)
    name, value = policy.split("=")
    config = replace(usual.config, **{name: int(value)})
    found = list(flat_plans(replace(request, config=config)))
    if not found:
        pytest.skip("shared memory does not hold so many steps")
    rng = cp.random.default_rng(0)
    x, dy = (rng.uniform(-1, 1, s).astype("float16") for s in (problem.x_shape, problem.y_shape))
    results = []
    for p in (usual, found[0]):
        dw = cp.full(problem.w_shape, cp.nan, "float16")
        buckets = cp.full(max(1, p.workspace // 4), cp.nan, "float32")
        kernels = loader.load(p.source(), str(p.config), p.shared(), 0)
        a, b, out = (ArrayLayout.fresh(v.shape).view(v.data.ptr, filter=v is dw)
                     for v in (x, dy, dw))  # fmt: skip
        p.launch(kernels, a, b, out, buckets.data.ptr, 0)
        results.append(dw)
    assert bool(cp.isfinite(results[0]).all())
    assert bool((results[0] == results[1]).all())


def test_channels_that_eight_do_not_divide_are_not_brought_ahead() -> None:
    """Copies have 16 bytes: such a config is the usual one, whose source it is."""
    problem = Problem.of((1, 3, 17, 36), (40, 1, 3, 36), padding=(0, 1))
    p = asked("8:3:6;variant=fused", "fp16", "h100", problem)[0]
    config = replace(p.config, ahead=2)
    found = asked("8:3:6;variant=fused", "fp16", "h100", problem, config=config)
    assert [q.config.ahead for q in found] == [0] * len(found)
    assert p.source() in {q.source() for q in found}
