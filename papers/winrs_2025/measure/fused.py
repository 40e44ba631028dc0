"""On a GPU: fused Ω in FP16 beside cuDNN's algorithms, for Tables 2 to 4 and Figure 11.

``python -m papers.winrs_2025.measure.fused [--seconds S]`` adds to
experiments/results/winrs_fused.jsonl: the layers of 3, 5, 7 and 9 taps that experiments.measure's
list has of the grid. ``kind`` is "fused" (each kernel of the paper that divides the filter),
"fused, FP16 sums" (the paper's), "fused in 0.18" (of the data as workspace: the paper's average),
"two launches", "picked", or, behind ours, "cuDNN" and "PyTorch". Errors are against FP64: the mean
relative one on U[0, 1] with dy scaled by 0.01, as the paper's, and the relative RMS on U[-1, 1); a
result that is not finite has the error "nan".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.measure.published.rows import Kinds, Row, layer_of, resumed
from papers.winrs_2025.lists import sample
from winolab.algorithm import Problem, omega
from winolab.arguments.variants import FUSED, FUSED_FP16
from winolab.bench.compare import Effort, compare
from winolab.bench.contenders import FRUGAL, unnamed
from winolab.device import Device
from winolab.gpu.families import registry
from winolab.gpu.families.wgrad_mma.plan import PAPER
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms.winrs.plan import data_size

RESULTS = ROOT / "experiments" / "results" / "winrs_fused.jsonl"
TAPS = (3, 5, 7, 9)  # of Figure 11
ROUNDS = 5
FAMILY = {family.name: family for family in registry.FAMILIES}
KINDS = ("fused", "fused, FP16 sums", f"fused in {FRUGAL}", "two launches", "picked")


def cases() -> list[Problem]:
    """Figure 11's layers."""
    return [layer.problem for layer in sample() if layer.taps in TAPS]


def planned(problem: Problem, device: Device) -> Kinds:
    """Our plans, and which each is; one that is several has the first's name."""
    request = unnamed("backward_filter", problem, "fp16", device)
    found: dict[Plan, str] = {}
    least = replace(request, workspace_limit=int(FRUGAL * request.data_size))
    for kind, asked, variant in (
        ("fused", request, FUSED),
        ("fused, FP16 sums", request, FUSED_FP16),
        (f"fused in {FRUGAL}", least, FUSED),
        ("two launches", request, None),
    ):
        for p in _fastest(asked, variant):
            found.setdefault(p, kind)
    chosen = plan(request)
    return {**found, chosen: f"{found[chosen]}, picked" if chosen in found else "picked"}


def _fastest(request: Request, variant: str | None) -> Iterator[Plan]:
    """The fastest predicted of each tile of the paper that divides the filter."""
    family = FAMILY["wgrad_mma" if variant else "wgrad_winograd"]
    for tile in PAPER:
        if request.problem.filter[-1] % tile.n == 0:
            named = omega(tile.alpha, tile.n, tile.r, variant=variant)
            with suppress(ValueError):
                found = family.plans(replace(request, algorithm=named))
                yield min(found, key=lambda p: p.predicted)


def key(problem: Problem) -> Row:
    """What tells a layer's rows from another's."""
    return layer_of("backward_filter", problem)


def labelled(rows: list[Row], kinds: Kinds, data: int) -> list[Row]:
    """The rows with what each is, and its workspace over the bytes of x, w and y, where known; none
    of who is left out."""
    names: dict[tuple[str, str, int | None], str] = {
        (p.kernel, str(p.config), p.workspace): kind for p, kind in kinds.items()
    }
    others = {"cudnn": "cuDNN", "torch": "PyTorch"}
    found = []
    for row in rows:
        method, space = row["method"], row.get("workspace")
        if method == "refused":
            continue
        kind = others.get(method) or names[row["kernel"], row["plan"], space]
        share = {} if space is None else {"of_data": round(space / data, 3)}
        found.append({**row, "kind": kind, **share})
    return found


def run(problem: Problem, kinds: Kinds) -> list[Row]:
    """The rows of a layer: everybody's."""
    plans = dict.fromkeys(kinds, False)
    rows = compare("backward_filter", problem, "fp16", None, Effort(rounds=ROUNDS), plans)
    return labelled(rows, kinds, data_size(problem) // 2)


def main(
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Measure the layers of which this GPU lacks rows."""
    resumed(output, seconds, cases(), key, planned, run)


if __name__ == "__main__":
    typer.run(main)
