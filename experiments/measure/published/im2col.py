"""On a GPU: Im2col-Winograd's policies on and off, each kernel of its Table 2.

``python -m experiments.measure.published.im2col [--seconds S]`` adds to
experiments/results/im2col_variants.jsonl: forward layers of 64 to 256 channels, widths that n
divides, and one that it does not, where segments stand beside masked tiles. ``kind`` is what the
algorithm's text names ("base", "ruse+fused", …), or "picked" for our own kernel of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.measure.published.rows import Kinds, Row, layer_of, resumed, timed
from winolab.algorithm import Problem, Tile, gamma
from winolab.device import Device
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request

RESULTS = ROOT / "experiments" / "results" / "im2col_variants.jsonl"
KERNELS = ((8, 7, 2), (8, 6, 3), (8, 5, 4), (8, 4, 5), (8, 3, 6), (8, 2, 7),
           (16, 10, 7), (16, 9, 8), (16, 8, 9))  # fmt: skip
MAPS = ((32, 64, 96), (32, 128, 48), (32, 256, 24))  # images, channels, about so many outputs
BLOCKS = {8: ("base", "ruse"), 16: ("base", "ruse", "c64")}


@dataclass(frozen=True)
class Case:
    """One layer by one kernel of the paper."""

    alpha: int
    tile: Tile
    problem: Problem

    @property
    def divides(self) -> bool:
        """Whether no tile is masked."""
        return self.problem.output[-1] % self.tile.n == 0


def cases() -> Iterator[Case]:
    """Square layers whose width n divides, and at 128 channels one whose last tile has one output,
    or, as in the paper's example of 7 outputs, one more than n."""
    for alpha, n, r in KERNELS:
        for images, channels, size in MAPS:
            whole = max(1, round(size / n)) * n
            for width in (whole, whole + 1) if channels == 128 else (whole,):
                size_in = width + r - 1 - 2 * (r // 2)
                x, w = (images, size_in, size_in, channels), (channels, r, r, channels)
                yield Case(alpha, Tile(n, r), Problem.of(x, w, padding=r // 2))


def planned(case: Case, device: Device) -> Kinds:
    """The paper's blocks, the filter inside and before; at an edge segments and masks; ours."""
    names = [f"{block}{fused}" for block in BLOCKS[case.alpha] for fused in ("", "+fused")]
    if not case.divides:
        names = [name + cut for name in names for cut in ("", "+segments")]
    found: dict[Plan, str] = {}
    for name in (*names, None):
        algorithm = gamma(case.alpha, case.tile.n, case.tile.r, variant=name)
        with suppress(ValueError):
            request = Request(case.problem, "forward", device, algorithm, "fp32_ffma")
            found.setdefault(plan(request), name or "picked")
    return found


def key(case: Case) -> Row:
    """What tells a case's rows from another's."""
    kernel = f"gamma:{case.alpha}:{case.tile.n}:{case.tile.r}"
    return {**layer_of("forward", case.problem), "kernel_of": kernel}


def run(case: Case, kinds: Kinds) -> list[Row]:
    """Its rows."""
    return [{**row, **key(case)} for row in timed("forward", case.problem, "fp32", kinds)]


def main(
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Measure the cases that have no rows yet."""
    resumed(output, seconds, list(cases()), key, planned, run)


if __name__ == "__main__":
    typer.run(main)
