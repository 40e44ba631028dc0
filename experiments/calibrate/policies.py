"""What every policy of our own is worth by kept rows: ``python -m experiments.calibrate.policies``.

Two plans of a call are a pair if they were timed side by side, one has the policy and the other
not, and their configs differ by nothing else but what goes with it. Of pairs whose faster plan is
within NEAR of the call's fastest, the time without over the time with says what the policy is worth
to the call; where that is below 1 it is not picked, and counts as 1. A line has how many calls have
pairs, on how many the policy wins, the geometric mean of all, and the most. What has no pairs,
nobody knows. No GPU is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from statistics import geometric_mean
from typing import Any

import numpy as np
import typer

from experiments.calibrate.device_model import FITTED, Sample, samples

NEAR = 1.02
REGISTERS = ("consumer_registers", "producer_registers", "loader_registers")
WAITING = ("ring", "skew", "rest", "narrow", "exchanges", "passes", *REGISTERS)
RINGS = ("u_stages", "v_stages", "x_stages", "w_stages", "stages", "passes", "fold", *REGISTERS)
BLOCKS = ("bm", "bn", "bt", "rows", "columns", "kc", "lanes", *RINGS)
_WARPS = ("block_rows", "block_columns", "depth", "warp_rows", "warp_columns", "blocks", "stages")
SHAPES = ("bi", "bo", "vector", "positions", "tiles", *BLOCKS, *_WARPS)
# By section of the device model: a policy's field, and those that go with it; a pair differs in
# the first.
POLICIES: dict[str, dict[str, tuple[str, ...]]] = {
    "fused2d": {
        "split_k": RINGS,
        "fused": ("teams", "ahead", *RINGS),
        "teams": ("bm", "ahead", "layout", *RINGS),
    },
    "gamma_ffma": {
        "share": ("rows", "cpt", "load_warp", "producers", "overlap", *RINGS),
        "split_k": RINGS,
        "load_warp": ("producers", "overlap", *RINGS),
        "overlap": RINGS,
    },
    "gamma_wgmma": {
        "share": ("rows", "run", "images", "u_ahead", "u_ring", "multicast", *WAITING),
        "split_k": ("u_ahead", "u_ring", "multicast", *WAITING),
        "u_ring": ("u_ahead", "multicast", *WAITING),
        "u_ahead": WAITING,
        "multicast": WAITING,
        "exchanges": ("u_ring",),
        "narrow": (),
        "fold": (),
        "images": ("run",),
        "packed": ("run", "images"),
        "padded": ("run", "images", "packed", *WAITING),
    },
    "direct": {"along": RINGS, "split_k": RINGS, "bm": BLOCKS},
    "direct_split": {"bm": BLOCKS},
    "im2col": {"split_k": SHAPES, "blocks": SHAPES, "bm": SHAPES},
    "implicit_gemm": {"fill": SHAPES, "producers": SHAPES, "blocks": SHAPES},
    "implicit_gemm_wgmma": {"fill": ("producers", *SHAPES), "blocks": SHAPES},
    "patches": {"width": SHAPES},
    "gamma_mma": {"share": ("rest", *SHAPES)},
    "wgrad_ffma": {"wrap": ()},
    "wgrad_mma": {"wrap": (), "half2": (), "ahead": ("stages",), "pad": ("stages",)},
    "wgrad_winograd": {"resident": ("groups", "groups_m", "ks", *SHAPES)},
    "wgrad_direct": {"n": SHAPES, "bi": SHAPES},
    "wgrad_im2col": {"split_k": SHAPES, "blocks": SHAPES},
    "thin": {"lanes": ("vector", "positions", "few")},
    "wgrad_thin": {"wide": ("few", "column_groups", *SHAPES), "few": ("column_groups", *SHAPES)},
    "depthwise": {
        "stages": ("kind", "strips", "group", "vector", *BLOCKS),
        "group": ("strips", "vector", *BLOCKS),
        "strips": ("group", "vector", *BLOCKS),
        "vector": BLOCKS,
    },
}
# Fields whose lower value is the policy: one exchange buffer, blocks of few output channels.
LOW = {"exchanges", "bm"}
# Counts, of which the policy is more than one: two counts differ by no policy.
COUNTS = {"split_k", "blocks", "teams", "resident"}


@dataclass(frozen=True)
class Worth:
    """Times without a policy over times with it, a call each."""

    section: str
    policy: str
    ratios: tuple[float, ...]

    def __str__(self) -> str:
        name = f"{self.section}.{self.policy}"
        if not self.ratios:
            return f"{name}: no pairs"
        wins = sum(ratio > 1 for ratio in self.ratios)
        mean = geometric_mean(max(1.0, ratio) for ratio in self.ratios)
        calls = f"{len(self.ratios)} calls, faster on {wins}"
        return f"{name}: {calls}, worth {mean:.3f}, most {max(self.ratios):.3f}"


def ratios(sample: Sample, policy: str, beside: tuple[str, ...]) -> Iterator[float]:
    """By calls that have pairs: the fastest without over the fastest with, of these."""
    for call in np.unique(sample.beside):
        at = np.flatnonzero(sample.beside == call)
        enough = NEAR * sample.seconds[at].min()
        found = [
            (sample.seconds[i], sample.seconds[j])
            for i, j in product(at, at)
            if min(sample.seconds[i], sample.seconds[j]) <= enough
            if differ(sample.plans[i][0], sample.plans[j][0], policy, beside)
        ]
        if found:
            with_, without = map(min, zip(*found, strict=True))
            yield float(without / with_)


def differ(first: Any, second: Any, policy: str, beside: tuple[str, ...]) -> bool:
    """Whether the first plan has the policy, and the second differs by it and what goes with it."""
    a, b = asdict(first.config), asdict(second.config)
    if first.kernel != second.kernel or a.keys() != b.keys() or policy not in a:
        return False
    has = a[policy] < b[policy] if policy in LOW else a[policy] > b[policy]
    has = has and not (policy in COUNTS and b[policy] > 1)
    return has and {name for name in a if a[name] != b[name]} <= {policy, *beside}


def worths() -> Iterator[Worth]:
    """Every policy's, of sections that are fitted."""
    for section, sample in samples(tuple(s for s in FITTED if s in POLICIES)).items():
        for policy, beside in POLICIES[section].items():
            yield Worth(section, policy, tuple(ratios(sample, policy, beside)))


def main() -> None:
    """Print what every policy is worth by kept rows."""
    print(*worths(), sep="\n")


if __name__ == "__main__":
    typer.run(main)
