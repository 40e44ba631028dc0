"""Which algorithms the guarded random problems run with, and how many kernels of each."""

from __future__ import annotations

from random import Random

from winolab.algorithm import Tile
from winolab.gpu.families.gamma.tiles import widths_of
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.families.gamma_mma import config as gamma_mma
from winolab.ref.algorithms.winrs.kernels import TILES

# Compiled kernels of each algorithm and precision; each runs PROBLEMS problems.
MOLDS = {
    "cublaslt": 6,
    "fused2d": 8,
    "gamma_ffma": 5,
    "gamma_wgmma": 4,
    "gamma_mma": 2,
    "nested": 3,
    "direct": 6,
    "im2col": 4,
    "im2col.split": 4,
    "direct.split": 6,
    "direct.ffma": 2,
    "depthwise": 18,
    "thin": 4,
    "skinny": 6,
    "patches": 6,
    "implicit_gemm": 9,
    "grouped": 4,
    "wgrad_thin": 4,
    "wgrad_grouped": 6,
    "wgrad_ffma": 2,
    "wgrad_mma": 3,
    "wgrad_winograd": 2,
    "wgrad_direct.columns": 4,
    "wgrad_direct.narrow": 2,
    "wgrad_direct.split": 4,
    "wgrad_im2col": 4,
    "wgrad_im2col.split": 4,
}
ONE_TAP = "cublaslt", "skinny"  # what serves no other filters
PLANES = 12  # the first of depthwise ones on planes
TWO_LEVEL = "gamma:8:6:3;variant=two_level:32"  # with two sets of sums
# Nested tiles: of one piece and of several, of the fewest and of the most states of a dimension.
# In three dimensions, and moduli whose tiles registers and shared memory hold.
MORE_NESTED = (
    "1x4x4:1x3x3", "6x6:3x3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1",
    "6x6:5x5@0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1",
)  # fmt: skip
NESTED = ("2x2:3x3", "4x4:3x3", "4x4:4x4", "3x3:3x3", "3x5:3x5", "3x4:7x4", "5x4:2x2", "2x6:2x5")
# Ω with moduli: of few and of many states.
MORE_OMEGAS = (
    "omega:9:3:6@0,3/4,-3/4,4/3,-4/3,inf,x^2+1",
    "omega:19:9:8@0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1",
)
OMEGAS = {
    "wgrad_ffma": TILES["fp32"],
    "wgrad_mma": TILES["fp16"][1:],
    # WinRS's, and what the planner picks besides.
    "wgrad_winograd": (
        *(Tile(1, 1), Tile(2, 3), Tile(3, 2), Tile(3, 6), Tile(5, 4), Tile(7, 2)),
        *(Tile(9, 8), Tile(7, 10), Tile(3, 7), Tile(3, 5), Tile(5, 3)),
    ),
    "wgrad_direct.columns": (Tile(1, 1),),
    "wgrad_direct.narrow": (Tile(1, 1),),
    "wgrad_direct.split": (Tile(1, 1),),
    "wgrad_im2col": (Tile(1, 1),),
    "wgrad_im2col.split": (Tile(1, 1),),
}

# What the problems of a family are drawn from, where it is not its name: what they were drawn from
# when experiments/results/sanitizer.jsonl was measured, so that its rows are of the same kernels.
SEEDS = {
    "gamma_ffma": "gamma",
    "gamma_wgmma": "gamma_tensor",
    "direct": "direct_tensor",
    "wgrad_ffma": "omega",
    "wgrad_winograd": "omega_tensor",
    "wgrad_direct.columns": "omega_columns",
    "wgrad_direct.narrow": "omega_direct",
    "wgrad_direct.split": "omega_split",
}


def algorithms(family: str, precision: str) -> list[str]:
    """The tiles of a family's kernels of a precision."""
    if family in OMEGAS:
        texts = (
            f"omega:{t.alpha}:{t.n}:{t.r}" if t.alpha > 1 else "direct" for t in OMEGAS[family]
        )
        return [*texts, *(MORE_OMEGAS if family in ("wgrad_ffma", "wgrad_winograd") else ())]
    if family == "cublaslt":
        return ["direct;variant=cublaslt"]
    others = "depthwise", "im2col", "implicit_gemm", "grouped", "patches", "thin"
    if family.startswith(("direct", "skinny", "wgrad_grouped", "wgrad_thin", *others)):
        return ["direct"]
    if family == "fused2d":
        return ["winograd:2x2:3x3"]
    if family == "nested":
        return [f"winograd:{tiles}" for tiles in (*NESTED, *MORE_NESTED)]
    own = {"gamma_ffma": gamma_ffma.WIDTHS, "gamma_mma": gamma_mma.WIDTHS}
    widths = own.get(family) or widths_of(precision)
    return [
        *(["direct", TWO_LEVEL] if family == "gamma_ffma" else []),
        *(f"gamma:{alpha}:{alpha - r + 1}:{r}" for alpha, some in widths.items() for r in some),
    ]


PLANE_TAPS = (3, 3), (5, 5), (7, 7), (1, 3), (4, 11), (4, 2)
DEPTHWISE_TAPS = (3, 3), (5, 5), (7, 7), (3, 3, 3), (4,), (7, 1), (4, 9), (2, 35)


def known_taps(family: str, seed: str) -> list[int]:
    """The filter of kernels in which it is constant, of a seed's depthwise ones and of products;
    else none."""
    if family in ONE_TAP:
        return [1] * Random(seed).randint(1, 3)
    if family == "depthwise on planes":
        return list(Random(seed).choice(PLANE_TAPS))
    if family == "depthwise":
        return list(Random(seed).choice(DEPTHWISE_TAPS))
    return [3, 3] if family == "fused2d" else []


def steps_of(family: str, seed: str, ndim: int) -> tuple[list[int], list[int]]:
    """Their strides and dilations, and those of many direct kernels; others have none."""
    rng = Random(f"{seed} steps")
    others = "depthwise", "implicit_gemm", "grouped", "patches", "thin"
    gradients = (f"wgrad_{name}" for name in ("grouped", "thin", "im2col", "im2col.split"))
    has = family in (*others, *gradients)
    has = has or (family.startswith("direct") and rng.random() < 0.5)
    steps = [rng.choice([1, 1, 2, 3]) if has else 1 for _ in range(2 * ndim)]
    if family == "direct.ffma":  # strides or dilation alone
        steps[ndim - 1] = rng.choice([2, 3])
    return steps[:ndim], steps[ndim:]


def channels_of(rng: Random, most: int, step: int) -> int:
    """Channels divided by ``step`` and, below 4, by no more."""
    count = rng.randint(1, max(1, most // step))
    return step * (count if step == 4 else count | 1)


def few(rng: Random, *, thin: bool = False) -> tuple[int, int, int]:
    """Groups, and the channels of one on both sides; ``thin``: few of one group on one side."""
    if thin:
        less, more = rng.randint(1, 8), rng.choice([8, 16, 24, 64, 96, rng.randint(1, 99)])
        return (1, less, more) if rng.random() < 0.5 else (1, more, less)
    channels, out_channels = (rng.choice([2, 4, 4, 8, 12, 16]) for _ in range(2))
    return rng.choice([3, 4, 8, 16]), channels, out_channels
