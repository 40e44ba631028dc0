"""WinRS's planner: the paper's golden values, limits, bad input, speed."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from winolab.algorithm import Problem, Tile
from winolab.device import DATASHEETS, datasheet
from winolab.ref.algorithms.winrs.kernels import Kernel, Pair, kernels, pair
from winolab.ref.algorithms.winrs.plan import baseline, plan, segment_blocks
from winolab.ref.error.metrics import error_ratio


def layer(n: int, o: int, c: int, f: int = 3) -> Problem:
    size = o + f - 1 - 2 * (f // 2)
    return Problem.of((n, size, size, c), (c, f, f, c), padding=f // 2)


VGG16_2 = layer(32, 224, 64)


def test_figure_5() -> None:
    """F_W = 3 and O_W = 16: Ω8(3,6) for what 6 divides, Ω4(3,2) for the rest (section 4.1)."""
    made = plan(layer(32, 16, 64), "rtx4090")
    assert made.pair == Pair(Kernel(Tile(3, 6)), 2, Kernel(Tile(3, 2)), 2)


def test_thirteen_kernels_and_direct_convolution() -> None:
    assert len(kernels(0, "fp32", "best", admissible=False)) == 14
    assert {str(k) for k in kernels(3, "fp32", "best", admissible=False)} == {
        "Ω2(1,1)", "Ω4(3,2)", "Ω8(3,6)",
    }  # fmt: skip


def test_figure_2_needs_segments() -> None:
    """One segment of VGG16's second layer has 6 blocks, for 128 multiprocessors."""
    assert segment_blocks(VGG16_2, Kernel(Tile(3, 6))) == 6
    assert plan(VGG16_2, "rtx4090").blocks >= 128


def test_wide_layers_take_one_segment_and_no_workspace() -> None:
    """Section 6.1: at 1024 channels one segment has blocks enough."""
    made = plan(layer(128, 12, 1024), "rtx4090")
    assert (len(made.segments), made.workspace) == (1, 0)


def test_segments_fall_with_channels() -> None:
    counts = [len(plan(layer(128, 6144 // c, c), "rtx4090").segments) for c in (64, 128, 256, 512)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 4 * counts[-1]


def test_admissible_leaves_out_alpha_16() -> None:
    """Its error on zero-mean data is 160 times direct's with the best points."""
    assert error_ratio(Tile(1, 1)) == 1
    for points in ("best", "paper"):
        assert 4 < error_ratio(Tile(3, 6), points) < 10
        assert error_ratio(Tile(8, 9), points) > 100
    problem = layer(32, 72, 64, 8)
    alphas = {k.tile.alpha for k in plan(problem, "rtx4090").pair.kernels}
    assert alphas <= {1, 4, 8}
    assert plan(problem, "rtx4090", admissible=False).pair.first.tile == Tile(8, 9)


@pytest.mark.parametrize("name", DATASHEETS)
def test_every_device_has_a_plan(name: str) -> None:
    device = DATASHEETS[name]
    assert plan(VGG16_2, name).predicted > 0
    if device.tensor:
        assert plan(VGG16_2, name, "fp16").predicted < plan(VGG16_2, name).predicted
    else:
        with pytest.raises(ValueError, match="no Tensor Cores"):
            plan(VGG16_2, name, "fp16")


def test_a_limit_is_kept_by_planning_again() -> None:
    free = plan(layer(128, 28, 256), "rtx4090")
    assert free.workspace > 0
    for limit in (free.workspace - 1, free.workspace // 2, 0):
        assert plan(layer(128, 28, 256), "rtx4090", workspace_limit=limit).workspace <= limit


def test_an_impossible_limit_is_refused() -> None:
    """Ω8(3,6) leaves two elements of 14 to another kernel, which needs a bucket."""
    with pytest.raises(ValueError, match=r"Ω8\(3,6\) needs a workspace of .* limit is 0 B"):
        plan(layer(8, 14, 64), "h100", kernel=Kernel(Tile(3, 6)), workspace_limit=0)


def test_bad_input_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="expected one of titanx, v100"):
        plan(VGG16_2, "rtx5090")
    with pytest.raises(ValueError, match="11 wide: widths are multiples of 2, 3, 4, 5, 6, 7, 8, 9"):
        plan(layer(8, 24, 64, 11))
    with pytest.raises(ValueError, match=r"plan the problems of winolab\.ref\..*\.phases"):
        plan(Problem.of((1, 8, 8, 1), (1, 3, 3, 1), stride=2))
    with pytest.raises(ValueError, match="kernels exist for fp32, fp16"):
        plan(VGG16_2, precision="fp64")
    with pytest.raises(ValueError, match="no pair of"):
        pair(4, (Kernel(Tile(3, 6)),), (Kernel(Tile(3, 2)),), DATASHEETS["h100"])


def test_a_plan_is_text_and_json() -> None:
    made = plan(VGG16_2, "RTX 4090")
    assert "Ω8(3,6)" in str(made)
    keys = {
        "device", "kernels", "segments", "segment_shape", "blocks", "workspace_bytes",
        "predicted_us",
    }  # fmt: skip
    assert keys <= json.loads(json.dumps(made.as_dict())).keys()


def test_a_plan_takes_less_than_a_millisecond() -> None:
    rng = np.random.default_rng(0)
    problems = []
    for _ in range(1000):
        f = int(rng.integers(2, 10))
        o = int(rng.integers(4, 225))
        c = 64 << int(rng.integers(0, 5))
        problems.append(layer(32 << int(rng.integers(0, 4)), o, c, f))
    plan(VGG16_2)
    start = time.process_time()
    for problem in problems:
        plan(problem, "rtx4090")
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("images", "size", "channels", "count"),
    [
        (80, 56, 64, 24),  # 18.5 by the work, to a multiple of 8
        (32, 56, 64, 8),  # 7.4
        (32, 28, 512, 4),  # 384 blocks of a segment, but little work each: 2.02 by the intensity
        (32, 7, 512, 1),  # as many blocks, and 0.49 by the other directions' blocks
    ],
)
def test_algorithm_1_rounds_to_powers_of_two_and_multiples_of_eight(
    images: int, size: int, channels: int, count: int
) -> None:
    problem = Problem.of((images, size, size, channels), (channels, 3, 3, channels), padding=1)
    assert baseline(problem, Kernel(Tile(3, 6)), datasheet("h100")) == count
