"""The Γ kernels' own source on the CPU: the reference's bits, and no bank conflicts that cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.gamma_ffma.predicted import predicted
from tests.gpu.families.gamma_ffma.tiles import KERNELS, MODULI, TILES
from tests.gpu.support.turns import turns
from winolab.algorithm import Problem, direct, gamma, parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.device import H100, datasheet
from winolab.gpu.families.gamma_ffma.config import CONFIGS
from winolab.gpu.families.gamma_ffma.plan import GammaFfmaPlan
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import winograd
from winolab.ref.error.metrics import noise_gain


def check(
    problem: Problem, direction: str, alpha: int, n: int, r: int, device=H100, text="", **options
) -> GammaFfmaPlan:
    """The kernel's bits are the reference's in the kernel's order; and its error is FP32's."""
    algorithm = options.pop("algorithm", None)
    if algorithm is None:
        algorithm = gamma(alpha, n, r, variant=text or None) if alpha > 1 else direct()
        if alpha == 1:  # split products of so few channels are faster
            options.setdefault("precision", "fp32_ffma")
    p = plan(Request(problem, direction, device, algorithm, **options))
    assert isinstance(p, GammaFfmaPlan)
    rng = np.random.default_rng(0)
    a_shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.uniform(-1, 1, s).astype("f") for s in (a_shape, problem.w_shape))
    y = hosted.execute(p, a, b, seed=3)
    assert np.array_equal(y, predicted(p, algorithm, a, b))
    exact = getattr(winograd, direction)(a, b, problem, direct(), winolab.arithmetic("fp64"))
    # Sequential sums on zero-mean data have 0.30 u √(terms · gain) (metrics.noise_gain); the
    # transforms' own roundings and small samples are given a factor of 3.
    gain = noise_gain(algorithm) if alpha > 1 else 1
    terms = b.size // problem.out_channels + 32
    error = relative_rms(y, exact)
    assert error <= 3 * 0.30 * 2**-24 * np.sqrt(terms * gain)
    return p


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize(("alpha", "n", "r"), KERNELS)
def test_every_kernel(alpha, n, r, direction) -> None:
    """As the planner runs it, or whole, which take turns: rows of n outputs and a rest, odd and
    even channels."""
    if (KERNELS.index((alpha, n, r)) + CORRELATIONS.index(direction)) % 2:
        problem = Problem.of((1, 4, n + r - 1, 32), (36, 2, r, 32), padding=(1, 0))
        check(problem, direction, alpha, n, r, config=CONFIGS[alpha][0])
        return
    width = max(r, 3)
    problem = Problem.of((2, 5, 2 * n + 3, 19), (21, 3, width - width % r, 19), padding=1)
    check(problem, direction, alpha, n, r)


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("name", MODULI)
def test_moduli_beyond_points(name, direction) -> None:
    """More states than inputs: the reference's bits, at direct convolution's error."""
    algorithm = parse_algorithm(f"{name}@{MODULI[name]}")
    (tile,) = algorithm.tiles
    problem = Problem.of((2, 5, 2 * tile.n + 3, 13), (21, 3, tile.r, 13), padding=1)
    p = check(problem, direction, tile.alpha, tile.n, tile.r, algorithm=algorithm)
    assert p.tile.alpha > p.tile.inputs
    unnamed = plan(Request(problem, direction, H100))
    assert all(tile.alpha == tile.inputs for tile in unnamed.tiles)  # nobody picks one


POLICIES = [
    ({"split_k": 2}, 76, 70),
    ({"split_k": 8}, 19, 33),
    ({"rows": 2, "share": 3, "u_stages": 2}, 24, 40),
    ({"rows": 8, "share": 1, "u_stages": 2, "split_k": 2}, 9, 130),
    ({"rows": 4, "share": 3}, 12, 5),
    ({"rows": 4, "share": 3, "split_k": 4}, 70, 70),
    ({"producers": 256, "rows": 2, "share": 3}, 20, 70),
    ({"rows": 4, "share": 3, "partial": 2}, 40, 5),
    ({"split_k": 2, "partial": 1}, 52, 37),
    ({"load_warp": True, "rows": 4, "share": 3}, 24, 40),
    ({"load_warp": True, "rows": 2, "share": 3, "split_k": 2, "partial": 1}, 36, 70),
    ({"load_warp": True}, 12, 70),
]  # what changes, channels, output channels


@pytest.mark.parametrize(("alpha", "policy"), turns(CONFIGS, POLICIES, of=3))
def test_every_policy(alpha, policy) -> None:
    change, channels, out_channels = policy
    n, r = TILES[alpha].n, TILES[alpha].r
    config = CONFIGS[alpha][-1]
    problem = Problem.of((3, 7, 14, channels), (out_channels, 3, max(r, 3), channels), padding=1)
    check(problem, "forward", alpha, n, r, config=replace(config, **change))


@pytest.mark.parametrize("bm", [40, 72, 88, 104, 120])
def test_blocks_of_any_width(bm) -> None:
    """A lane's outputs are no multiple of four: 5, 9, 11, 13, 15."""
    config = replace(CONFIGS[8][0], bm=bm, rows=4, share=3)
    problem = Problem.of((2, 7, 14, 20), (bm + 3, 3, 3, 20), padding=1)
    check(problem, "forward", 8, 6, 3, config=config)


@pytest.mark.parametrize("bm", [20, 24, 32])
def test_lanes_along_tiles(bm) -> None:
    config = replace(CONFIGS[16][1], bm=bm, rows=16, share=9, partial=1)
    problem = Problem.of((1, 18, 9, 20), (bm + 1, 9, 9, 20), padding=4)
    check(problem, "forward", 16, 8, 9, config=config)


@pytest.mark.parametrize("direction", CORRELATIONS)
def test_clusters_share_what_whole_rounds_leave(direction) -> None:
    config = replace(CONFIGS[8][-1], split_k=2)
    problem = Problem.of((3, 9, 14, 20), (20, 3, 3, 20), padding=1)
    few = replace(H100, multiprocessors=5)
    p = check(problem, direction, 8, 6, 3, few, config=config)
    assert (p.work_tiles, p.whole, p.grid) == (9, 8, 4)


@pytest.mark.parametrize("split_k", [1, 3])
def test_two_level_sums(split_k) -> None:
    """Sums of 24 products are no multiple of a shared stage of two rows, 16."""
    config = replace(CONFIGS[8][-1], split_k=split_k, rows=2, share=2)
    problem = Problem.of((2, 5, 14, 40), (20, 2, 3, 40), padding=1)
    p = check(problem, "forward", 8, 6, 3, text="two_level:24", config=config)
    assert p.config.fold == 3


@pytest.mark.parametrize("aligned", [True, False])
def test_two_level_sums_before_9_0(aligned) -> None:
    """Blocks whose sums are of eight stages of four channels."""
    problem = Problem.of((2, 5, 14, 36), (20, 2, 3, 36), padding=1)
    p = check(problem, "forward", 8, 6, 3, datasheet("a100"), "two_level:32", aligned=aligned)
    assert (p.config.kc, p.config.fold) == (4, 8)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 5, 17, 5), (10, 2, 2, 3, 5), {"padding": (1, 0, 2)}),
        ((3, 40, 8), (16, 3, 8), {"padding": 3}),
        ((2, 5, 17, 26), (22, 3, 3, 13), {"padding": 1, "groups": 2}),
        ((1, 9, 25, 8), (8, 1, 9, 8), {"padding": (0, 4)}),
        ((1, 2, 3, 1), (1, 1, 3, 1), {}),
    ],
)
@pytest.mark.parametrize("direction", CORRELATIONS)
def test_every_kind_of_problem(x, w, options, direction) -> None:
    """One and three dimensions, groups, a filter in pieces of 3, a single output."""
    check(Problem.of(x, w, **options), direction, 8, 6, 3)


@pytest.mark.parametrize("aligned", [True, False])
def test_arrays_that_are_not_aligned(aligned) -> None:
    problem = Problem.of((2, 5, 13, 16), (32, 3, 3, 16), padding=1)
    check(problem, "forward", 8, 6, 3, aligned=aligned)


@pytest.mark.parametrize(
    ("alpha", "config"),
    [
        *((a, v) for a, shapes in CONFIGS.items() for v in shapes),
        (8, replace(CONFIGS[8][0], bm=72, cpt=1, xvec=1)),
        (16, replace(CONFIGS[16][1], bm=24, cpt=1, xvec=1)),
    ],
    ids=str,
)
def test_the_main_loop_has_no_bank_conflicts(alpha, config) -> None:
    """Reads of U and V, and writes of V, for which the α = 1 kernel has too few states to vary."""
    n, r = TILES[alpha].n, TILES[alpha].r
    problem = Problem.of((1, 3, n + r - 1, 16), (config.bm, 1, r, 16), padding=(1, 0))
    algorithm = gamma(alpha, n, r) if alpha > 1 else direct()
    p = plan(Request(problem, "forward", H100, algorithm, config=config))
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype("f") for s in (problem.x_shape, problem.w_shape))
    requests, lost = Counter(), Counter()
    for q in hosted.requests(p, a, b)["winolab_gamma_ffma"]:
        key = q.member, "write" if q.write else "read", q.warp < config.consumers // 32
        requests[key] += q.requests
        lost[key] += q.wavefronts - q.phases
    for loop in (("u", "read", True), ("v", "read", True), ("v", "write", False)):
        assert requests[loop] > 0
        assert lost[loop] == 0
    assert lost["out", "write", True] == 0
