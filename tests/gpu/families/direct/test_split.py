"""Direct products of split FP32 data, and those on FFMA units behind them: the kernels' sources on
the CPU, and on a GPU, against FP64 within the proven bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu, operands, too_far
from tests.gpu.families.direct.cases import DIRECTIONS, PROBLEMS, layer
from tests.gpu.support.turns import turns
from winolab.device import H100, datasheet
from winolab.gpu.families.direct import launch
from winolab.gpu.families.direct.config import SPLIT_BLOCKS, Config
from winolab.gpu.families.direct.plan import DirectSplitPlan, ffma_plans, split_plans
from winolab.gpu.params import View
from winolab.gpu.planner.fallback import StridedWithFallback, verify
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request

WIDE = Config(128, 192, 2, 3)
UNIT = {
    "3x3": layer((2, 9, 10, 72), 72, (3, 3), padding=1),
    "1x1": layer((3, 7, 9, 40), 200, (1, 1)),
    "1x1 groups": layer((2, 6, 7, 16), 24, (1, 1), groups=2),
    "three": layer((1, 4, 5, 6, 8), 12, (2, 2, 3), padding=(1, 0, 2)),
}
ALL = PROBLEMS | UNIT
# What has maps of fewer outputs than are checked is another family's.
SERVED = [name for name in ALL if name != "small map"]


def planned(name: str, direction: str, shape: Config) -> DirectSplitPlan:
    found = split_plans(Request(ALL[name], direction, H100, None, "fp32_split"))
    return replace(next(iter(found)), config=shape)


def flags(p: Any, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, list[int]]:
    left = np.zeros(16, "uint8")
    y = hosted.execute(p, a, b, left=left)
    return y, left.view("int32").tolist()


CASES = [(name, direction) for name in SERVED for direction in DIRECTIONS]
ALONE = turns(SERVED, DIRECTIONS)  # by blocks alone; the others by clusters
SHARED = [case for case in CASES if case not in ALONE]


@pytest.mark.parametrize(("name", "direction"), ALONE)
def test_split_results_are_those_of_fp64(name: str, direction: str) -> None:
    asked = Request(ALL[name], direction, H100, None, "fp32_split", config=WIDE)
    (p,) = split_plans(asked)
    a, b = operands(p.problem, direction, "fp32")
    y, (lost, _, tiny, confirmed) = flags(p, a, b)
    assert too_far(p, a, b, y) == 0, p
    assert not lost
    assert not tiny
    assert not confirmed


@pytest.mark.parametrize("zeros", ["one", "a row", "all"])
def test_a_result_that_is_0_by_chance_asks_for_no_scan(zeros: str) -> None:
    """Those beside it are not; where they are 0 as well, numbers may have vanished."""
    p = planned("1x1", "forward", WIDE)
    a, b = operands(p.problem, "forward", "fp32")
    b[0] = 0
    b[0, ..., :4] = 1, -1, 1, -1
    some = {"one": a[:1, :1, :1], "a row": a[:, :2], "all": a}[zeros]
    some[..., 1::2] = some[..., ::2]
    y, (lost, zero, tiny, confirmed) = flags(p, a, b)
    assert too_far(p, a, b, y) == 0
    assert (y[..., 0] == 0).sum() >= some[..., 0].size
    assert zero == (zeros != "one")
    assert (lost, tiny, confirmed) == (0, 0, 0)


@pytest.mark.parametrize("columns", [(0, 8), (8, 16), (2, 6), (12, 16), (5, 8)], ids=str)
def test_numbers_that_vanish_beside_large_ones_are_found(columns: tuple[int, int]) -> None:
    """Four results of a row or more that are 0, which large ones eight positions on hid; or three,
    and a small one that large ones before it excuse."""
    problem = layer((1, 8, 16, 32), 32, (1, 1))
    asked = Request(problem, "forward", H100, None, "fp32_split", config=WIDE)
    p = candidates(asked).plans[0]
    a, b = operands(problem, "forward", "fp32")
    first, end = columns
    a[0, 0, first:end] *= np.float32(2.0**-60)
    if end - first < 4:
        a[0, 0, first - 1] *= np.float32(2.0**-30)
    y, found = flags(p.primary, a, b)
    assert (y[0, 0] == 0).all(-1).nonzero()[0].tolist() == [*range(first, end)]
    assert found == [0, 1, 1, 0]
    with pytest.raises(ValueError, match="too far apart"):
        verify(found)
    assert p.fallback is not None
    assert too_far(p.fallback, a, b, hosted.execute(p, a, b)) == 0


# Blocks of three and of four warpgroups.
TALL = (
    Config(192, 128, 2, 2),
    Config(192, 32, 2, 3),
    Config(256, 96, 2, 2),
    Config(256, 64, 2, 2),
)
MORE = [(name, direction) for name, direction in CASES if name in ("1x1", "cut")]


@pytest.mark.parametrize("shape", TALL, ids=str)
@pytest.mark.parametrize(("name", "direction"), MORE)
def test_blocks_of_more_positions_have_more_warpgroups(
    name: str, direction: str, shape: Config
) -> None:
    asked = Request(ALL[name], direction, H100, None, "fp32_split", config=shape)
    (p,) = split_plans(asked)
    assert p.threads == 2 * shape.bn + 128
    a, b = operands(p.problem, direction, "fp32")
    y, found = flags(p, a, b)
    assert too_far(p, a, b, y) == 0, p
    assert not any(found[i] for i in (0, 2, 3))


@pytest.mark.parametrize("multiprocessors", [2, 3])  # 3: blocks meet other output channels
@pytest.mark.parametrize("w_stages", [1, 2, 3])  # 1: no room for a filter of two steps
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_filters_that_fit_in_a_block_are_copied_once(
    direction: str, w_stages: int, multiprocessors: int
) -> None:
    device = replace(H100, multiprocessors=multiprocessors)
    problem = layer((7, 11, 13, 64), 64, (1, 1))
    asked = Request(
        problem, direction, device, None, "fp32_split", config=Config(128, 32, 2, w_stages)
    )
    (p,) = split_plans(asked)
    assert p.steps == 2
    assert p.work_tiles > 4 * p.grid
    a, b = operands(problem, direction, "fp32")
    y, found = flags(p, a, b)
    assert too_far(p, a, b, y) == 0, p
    assert not any(found[i] for i in (0, 2, 3))


@pytest.mark.parametrize("shape", [Config(256, 128, 2, 2), Config(128, 160, 2, 2)], ids=str)
def test_blocks_that_registers_or_wgmma_do_not_have_are_refused(shape: Config) -> None:
    asked = Request(ALL["1x1"], "forward", H100, None, "fp32_split", config=shape)
    with pytest.raises(ValueError, match=f"no blocks {shape.bn}x{shape.bm}x64"):
        list(split_plans(asked))


# Blocks of a cluster, which finish one to four eights of channels each.
CLUSTERS = (
    Config(128, 96, 2, 4, 0, 4),
    Config(128, 64, 2, 3, 0, 8),
    Config(128, 32, 5, 6, 0, 2),
    Config(128, 128, 2, 4, 0, 4),
)
WIDEST = replace(SPLIT_BLOCKS[0], split_k=8)


def cluster_of(name: str, direction: str) -> Config:
    """A cluster for a problem, each in turn."""
    turn = SERVED.index(name) // 2 + DIRECTIONS.index(direction)
    return CLUSTERS[turn % len(CLUSTERS)]


@pytest.mark.parametrize(("name", "direction"), SHARED)
def test_blocks_of_a_cluster_share_sums(name: str, direction: str) -> None:
    """Some blocks have nothing to sum where channels and taps are few."""
    shape = cluster_of(name, direction)
    asked = Request(ALL[name], direction, H100, None, "fp32_split", config=shape)
    (p,) = split_plans(asked)
    assert p.grid == shape.split_k * p.work_tiles
    assert p.split_sums == ((1.0, shape.split_k),)
    a, b = operands(p.problem, direction, "fp32")
    y, (lost, _, tiny, confirmed) = flags(p, a, b)
    assert too_far(p, a, b, y) == 0, p
    assert not lost
    assert not tiny
    assert not confirmed


def test_every_cluster_has_its_turn() -> None:
    met = [(cluster_of(name, d), d, ALL[name].unit) for name, d in SHARED]
    assert {(v, d) for v, d, _ in met} == {*product(CLUSTERS, DIRECTIONS)}
    assert {unit for *_, unit in met} == {False, True}


def test_clusters_are_offered_where_blocks_are_few() -> None:
    """One image of a strided layer has 16 blocks for 132 multiprocessors; 256 images have more."""
    one = layer((1, 14, 14, 256), 512, (3, 3), stride=2, padding=1)
    for direction in DIRECTIONS:
        request = Request(one, direction, H100, None, "fp32_split", in_phases=False)
        found, more = (
            min(split_plans(replace(request, problem=p)), key=lambda p: p.predicted)
            for p in (one, replace(one, batch=256))
        )
        assert found.config.split_k > 1
        alone = replace(found.config, split_k=1)
        (other,) = split_plans(replace(request, config=alone))
        assert found.predicted < 0.9 * other.predicted
        assert more.config.split_k == 1


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_ffma_results_are_those_of_fp64(name: str, direction: str) -> None:
    (p,) = ffma_plans(Request(PROBLEMS[name], direction, H100))
    a, b = operands(p.problem, direction, "fp32")
    assert too_far(p, a, b, hosted.execute(p, a, b)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", SERVED)
def test_results_on_a_gpu_are_those_of_fp64(name: str, direction: str) -> None:
    asked = Request(ALL[name], direction, H100, None, "fp32_split")
    for p in (*split_plans(asked), *ffma_plans(replace(asked, precision="fp32"))):
        a, b = operands(p.problem, direction, "fp32")
        assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", SERVED)
def test_clusters_on_a_gpu_have_the_results_of_fp64(name: str, direction: str) -> None:
    """The cluster whose turn it is, the widest, and the planner's blocks in eights."""
    for shape in (cluster_of(name, direction), WIDEST, replace(SPLIT_BLOCKS[4], split_k=8)):
        asked = Request(ALL[name], direction, H100, None, "fp32_split", config=shape)
        for p in split_plans(asked):
            a, b = operands(p.problem, direction, "fp32")
            assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


@pytest.mark.parametrize("split_k", [1, 4])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["3x3 stride 2", "1x1 stride 2", "1x1"])
def test_what_split_products_lose_is_computed_again(
    name: str, direction: str, split_k: int
) -> None:
    """Magnitudes within an image that are too far apart: of all channels but one, which no output
    reads."""
    problem = ALL[name]
    shape = replace(SPLIT_BLOCKS[2], split_k=split_k)
    asked = Request(problem, direction, H100, None, "fp32_split", config=shape)
    p = candidates(asked).plans[0]
    assert p.fallback is not None
    a, b = operands(problem, direction, "fp32")
    a[0, ..., 1:] *= np.float32(2.0**-34)
    if direction == "forward":
        b[..., 0] = 0
    else:
        b[0] = 0
    y = hosted.execute(p, a, b)
    assert too_far(p.fallback, a, b, y) == 0
    lost = flags(p.primary, a, b)[0]
    assert too_far(p.fallback, a, b, lost) > 0


@pytest.mark.parametrize("channels", [4, 8, 48])
def test_each_step_of_every_tap_is_added(channels: int) -> None:
    """Beside 1 every other step's sum is lost: the bound had one step of 32 channels for several
    taps of fewer."""
    problem = layer((1, 23, 23, channels), 64, (16, 16))
    p = next(iter(split_plans(Request(problem, DIRECTIONS[0], H100, None, "fp32_split"))))
    a, b = (np.zeros(s, "float32") for s in (problem.x_shape, problem.w_shape))
    a[..., ::32] = b[..., ::32] = 2.0**-12 * (1 - 2.0**-10)
    a[0, 0, 0, 0] = b[:, 0, 0, 0] = 1
    found = hosted.execute(p, a, b)
    exact = (a[:, :16, :16].astype(float) * b).sum((1, 2, 3))
    others = 256 * -(-channels // 32) - 1
    assert (np.abs(found[0, 0, 0] - exact) >= 0.99 * others * 2.0**-24).all()
    assert too_far(p, a, b, found) == 0


def test_strided_layers_in_fp32_are_served_everywhere() -> None:
    """By split products with a fallback where these serve, else by an implicit GEMM, or FFMA, where
    the stride's phases are no channels."""
    problem = layer((32, 56, 56, 64), 128, (3, 3), stride=2, padding=1)
    for direction in DIRECTIONS:
        p = plan(Request(problem, direction, H100, in_phases=False))
        assert isinstance(p, StridedWithFallback)
        assert (p.kernel, p.precision, p.fallback.precision) == ("Γ1(1,1)", "fp32_split", "fp32")
        for request in (
            Request(problem, direction, datasheet("a100"), in_phases=False),
            Request(problem, direction, H100, aligned=False, in_phases=False),
        ):
            assert plan(request).kernel == "implicit GEMM"
            ffma = plan(replace(request, precision="fp32_ffma"))
            assert ffma.precision == "fp32"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "shape", [SPLIT_BLOCKS[0], SPLIT_BLOCKS[5], *SPLIT_BLOCKS[6:8], CLUSTERS[0], WIDEST], ids=str
)
def test_kernels_spill_nothing(direction: str, shape: Config, compiled) -> None:
    p = planned("3x3 stride 2", direction, shape)
    (other,) = ffma_plans(Request(p.problem, direction, H100))
    view, w = View(0, (16,) * 4), View(0, (16,) * 5)
    size = len(launch.ffma_params(other, 0, view, w, view, 0).data)
    filters = launch.filter_map(p, 0, w)
    walk = -(-len(launch.main_params(p, 0, view, filters, view).data) // 64) * 64
    for source, check in (
        (p.source(), f"sizeof(DirectSplitParams) == {walk + 64}"),
        (other.source(), f"sizeof(DirectFfmaParams) == {size}"),
    ):
        check = f"\nstatic_assert({check});"
        found = compiled(source + check)
        assert not any(kernel.spills for kernel in found.values())
