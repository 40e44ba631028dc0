"""What policies without kept pairs are worth: ``python -m experiments.measure.ways.policies``.

On a GPU, of each case of CASES the fastest predicted plan that has a policy, and the fastest that
differs from it by the policy alone and by what goes with it (POLICIES of calibrate.policies), are
timed in turn with a cold L2 cache. One policy has no such second plan among those offered: Γ on
wgmma has one buffer for what consumers exchange only where two have no room. The other plan is what
would be picked of the algorithm if there were none.

Rows go to experiments/results/policies.jsonl, and a call goes on where another ended. A row says
whether today's pick of the layer in its precision has the policy (``picked``). The last lines say
of each policy on how many layers it wins; the geometric mean of the time without over the time
with, where a layer on which it loses counts as 1, as it need not be picked there; the most; and the
mean of those layers on which it is picked, where losses count. Rows of a policy that went stay, and
are told as all are.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.calibrate.policies import COUNTS, LOW, POLICIES, Worth, differ
from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.published.rows import Kinds, resumed, timed
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.contenders import GROUPS, unnamed
from winolab.bench.networks import parse
from winolab.device import Device
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Plan, Request
from winolab.problem import Direction

RESULTS = ROOT / "experiments" / "results" / "policies.jsonl"
FFMA, SPLIT = "fp32_ffma", "fp32_split"
FORWARD: Direction = "forward"
DATA: Direction = "backward_data"
FILTER: Direction = "backward_filter"
FUSED = "omega:8:3:6;variant=fused"
Row = dict[str, Any]
Named = tuple[str, Direction, str]  # a layer, and the algorithm that has a policy there


@dataclass(frozen=True)
class Case:
    """A layer where a policy is offered: the algorithm that has it, in a precision."""

    policy: str  # section of the device model and field of a config
    layer: str
    direction: Direction
    algorithm: str  # "": any
    precision: str

    @property
    def problem(self) -> Problem:
        return parse(self.layer).problem

    @property
    def group(self) -> str:
        """What its arrays are."""
        return next((g for g, units in GROUPS.items() if self.precision in units), "fp32")

    @property
    def key(self) -> Row:
        """What tells its rows from another's."""
        names = ("policy", "layer", "direction", "precision")
        return {name: getattr(self, name) for name in names}

    def request(self, device: Device) -> Request:
        """The request for any algorithm."""
        asked = unnamed(self.direction, self.problem, self.group, device)
        return replace(asked, precision=self.precision)


EXCHANGES: tuple[Named, ...] = (
    ("128x32x32x160>160x4x4", FORWARD, "gamma:8:5:4"),
    ("128x48x48x128>128x4x4", DATA, "gamma:8:5:4"),
    ("128x50x50x64>64x8x8", FORWARD, "gamma:8:5:4"),
    ("128x53x53x96>96x4x4", DATA, "gamma:8:5:4"),
    ("32x29x29x320>320x8x8p4", DATA, "gamma:8:5:4"),
    ("32x128x128x64>64x8x8p4", FORWARD, "gamma:8:5:4"),
    ("32x28x28x128>128x3x3p1", FORWARD, "gamma:8:6:3"),
    ("32x14x14x256>256x3x3p1", DATA, "gamma:8:6:3"),
)
WRAP = (
    ("1x14x14x256>256x3x3p1", "omega:8:3:6"),
    ("1x112x112x64>128x3x3p1", "omega:8:3:6"),
    ("32x56x56x128>32x3x3p1", "omega:8:3:6"),
    ("32x147x147x32>64x3x3p1", "omega:8:3:6"),
    ("1x64x64x64x32>64x3x3x3p1", "omega:8:3:6"),
    ("1x17x17x128>192x1x7p0x3", ""),
    ("32x28x28x512>512x3x3p1", "omega:8:3:6"),
    ("32x14x14x256>256x3x3p1", "omega:8:3:6"),  # where units that run on are far fewer
    ("32x7x7x512>512x3x3p1", "omega:8:3:6"),
    ("32x14x14x512>512x3x3p1", "omega:8:3:6"),
    ("1x28x28x256>512x3x3p1", ""),
    ("1x17x17x160>192x1x7p0x3", ""),
    ("32x28x28x128>32x3x3p1", ""),
    ("32x14x14x128>32x3x3p1", ""),
    ("1x14x14x512>512x3x3p1g32", ""),
    ("1x128x128x128x32>32x3x3x3p1", ""),
)
# Networks' layers where today's pick has a policy, by any algorithm: of one image, whose blocks are
# few, where blocks share sums.
PICKED: dict[tuple[str, str], tuple[tuple[str, Direction], ...]] = {
    ("gamma_ffma.split_k", FFMA): (
        ("1x112x112x128>128x3x3p1", FORWARD),
        ("1x17x17x128>192x1x7p0x3", DATA),
        ("1x8x8x384>384x1x3p0x1", FORWARD),
        ("1x28x28x128>128x3x3p1", FORWARD),
        ("1x35x35x48>64x5x5p2", FORWARD),
        ("32x112x112x64>128x3x3p1", DATA),
    ),
    ("gamma_wgmma.split_k", SPLIT): (
        ("32x7x7x512>512x3x3p1", FORWARD),
        ("1x56x56x128>256x3x3p1", FORWARD),
        ("1x56x56x128>256x3x3p1", DATA),
        ("1x28x28x256>512x3x3p1", DATA),
        ("1x17x17x192>192x1x7p0x3", DATA),
        ("1x112x112x64>128x3x3p1", DATA),
    ),
    ("fused2d.teams", FFMA): (
        ("1x56x56x64>64x3x3p1", FORWARD),
        ("1x14x14x256>256x3x3p1", DATA),
        ("1x7x7x512>512x3x3p1", FORWARD),
        ("1x35x35x96>96x3x3p1", FORWARD),
        ("1x28x28x512>512x3x3p1", DATA),
        ("1x149x149x32>32x3x3", FORWARD),
    ),
    ("implicit_gemm.fill", SPLIT): (
        ("32x224x224x3>64x7x7s2p3", FORWARD),
        ("32x224x224x3>96x4x4s4", FORWARD),
        ("1x520x520x3>64x7x7s2p3", FILTER),
        ("1x224x224x3>64x7x7s2p3", FILTER),
    ),
    ("implicit_gemm_wgmma.fill", "fp16"): (
        ("1x224x224x3>64x7x7s2p3", FILTER),
        ("32x224x224x3>64x7x7s2p3", FILTER),
        ("32x224x224x3>64x3x3p1", FILTER),
        ("1x299x299x3>32x3x3s2", FILTER),
    ),
    ("implicit_gemm.producers", "fp16"): (
        ("32x56x56x64>128x1x1s2", DATA),
        ("32x56x56x64>128x1x1s2", FORWARD),
        ("1x224x224x3>64x3x3p1", FILTER),
        ("32x224x224x3>64x7x7s2p3", FILTER),
    ),
}
_BY_POLICY = (
    [Case("gamma_wgmma.exchanges", *how, SPLIT) for how in EXCHANGES],
    [Case("wgrad_ffma.wrap", layer, FILTER, how, FFMA) for layer, how in WRAP],
    [Case("wgrad_mma.wrap", layer, FILTER, FUSED, "fp16") for layer, how in WRAP if "3:6" in how],
    *(
        [Case(policy, layer, direction, "", precision) for layer, direction in layers]
        for (policy, precision), layers in PICKED.items()
    ),
)
# In turn, so that every policy has rows whenever time is over.
CASES: tuple[Case, ...] = tuple(case for case in chain(*zip_longest(*_BY_POLICY)) if case)


def has(p: Plan, policy: str) -> bool:
    """Whether the plan's config has the policy; one of a family without it has not."""
    section, name = policy.split(".")
    value = getattr(p.config, name, None)
    family = type(p.primary).__module__.split(".")[-2]
    of_family = family in (section, section.removesuffix("_split"), section.removesuffix("_wgmma"))
    if not of_family or value is None:
        return False
    return value == 1 if name in LOW else value > 1 if name in COUNTS else bool(value)


def pair(case: Case, device: Device) -> Kinds:
    """The two plans of a case; none, which is said, where nothing is offered any more."""
    algorithm = parse_algorithm(case.algorithm) if case.algorithm else None
    asked = replace(case.request(device), algorithm=algorithm)
    plans = sorted(candidates(asked).plans, key=lambda p: p.predicted)
    section, name = case.policy.split(".")
    for p in (p for p in plans if has(p, case.policy)):
        others = (q for q in plans if not has(q, case.policy))
        if case.policy != "gamma_wgmma.exchanges":
            beside = POLICIES[section][name]
            others = (q for q in others if differ(p, q, name, beside))
        if without := next(others, None):
            return {p: "with", without: "without"}
    print(f"{case}: no pair of plans is offered", flush=True)
    return {}


def beside(case: Case, kinds: Kinds) -> list[Row]:
    """The rows of a case."""
    (device,) = {p.device for p in kinds}
    picked = has(plan(case.request(device)), case.policy)
    rows = timed(case.direction, case.problem, case.group, kinds, errors=False)
    return [{**row, **case.key, "products": row["precision"], "picked": picked} for row in rows]


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """What each policy is worth on a GPU, by its rows."""
    found: dict[tuple[str, str], dict[tuple[str, ...], dict[str, float]]] = {}
    picked: dict[tuple[str, ...], bool] = {}
    for row in rows:
        what = (row["policy"], row["layer"], row["direction"], row["precision"])
        took = found.setdefault((row["device"], row["policy"]), {}).setdefault(what, {})
        took[row["kind"]] = row["cold_us"][1]
        picked[what] = row["picked"]
    for (device, policy), took in found.items():
        ratios = {what: us["without"] / us["with"] for what, us in took.items() if len(us) == 2}
        section, name = policy.split(".")
        worth = Worth(section, name, tuple(ratios.values()))
        mine = [ratio for what, ratio in ratios.items() if picked[what]]
        said = f"{statistics.geometric_mean(mine):.3f} of {len(mine)}" if mine else "none"
        yield f"{device}: {worth}; picked today: {said}"


def main(
    only: Annotated[str, typer.Option(help="Policies with commas, as a row has them.")] = "",
    seconds: Annotated[float, typer.Option(help="Time that timing may take.")] = 50,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Time pairs of plans on this GPU, and say what policies are worth."""
    wanted = [case for case in CASES if not only or case.policy in only.split(",")]
    if not wanted:
        raise typer.BadParameter(f"{only!r}; {', '.join(sorted({c.policy for c in CASES}))}")
    resumed(output, seconds, wanted, lambda case: case.key, pair, beside)
    print("\n".join(summarized(stored(output))))


if __name__ == "__main__":
    typer.run(main)
