"""Kept rows of networks' layers whose picks are gone: ``python -m experiments.calibrate.gone``.

What the planner picks is to be what is measured. The command plans every case of FILES on the GPU
that timed it, by its data sheet, without a GPU and in half a minute, and writes today's picks of
those cases whose row is of another kernel, block or cut of its sum to gone_picks.jsonl. Such rows
count in no mean, share or least, and experiments.measure.layers times their cases first. A test
plans a sample of the list and of the others again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from experiments.calibrate.plans import takes
from experiments.calibrate.rows import DEVICES, layer_of
from experiments.harness.machines import stored
from experiments.harness.tables import RESULTS
from experiments.measure.layer_rows import Row, key, latest
from winolab.bench.contenders import unnamed
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import DIRECTIONS, Plan
from winolab.lines import rewrite

LIST = Path(__file__).with_name("gone_picks.jsonl")
FILES = (
    *("depthwise", "depthwise_kinds", "strided", "grouped"),
    *(f"networks_{way}" for way in DIRECTIONS),
)
WALK = "rows", "workers"  # of a depthwise plan, besides its config
CASE = "device", "layer", "direction", "precision"
NEAR = 0.01  # of a workspace: what notes suspects has grown with the data (docs/notes/126)


def chosen() -> list[Row]:
    """The rows of what was picked, each case's last."""
    return [row for name in FILES for row in latest(stored(RESULTS / f"{name}.jsonl"))
            if row.get("chosen")]  # fmt: skip


def picked(row: Row) -> Plan:
    """What a call of the row's case picks today, on the GPU of the row."""
    layer, device = layer_of(row["layer"]), DEVICES[row["device"]]
    return plan(unnamed(row["direction"], layer.problem, row["precision"], device))


def told(p: Plan) -> dict[str, Any]:
    """What rows say of a plan."""
    walk = {name: getattr(p, name) for name in WALK if hasattr(p, name)}
    config = {"kernel": p.kernel, "products": p.precision, "plan": str(p.config)}
    return config | walk | {"workspace": p.workspace}


def same(row: Row, p: Plan) -> bool:
    """Whether a row is of this plan: its kernel, products, config and walk, and of the workspace
    that its sum's shares take, or took when the row was measured."""
    mine = told(p)
    then = takes(p, row["workspace"])
    return alike(row, mine) or (then and alike(row | {"workspace": p.workspace}, mine))


def alike(row: Row, pick: Row) -> bool:
    """Whether a row says of its plan what another does, as far as it says anything."""
    return all(
        abs(row[name] - value) <= NEAR * value if name == "workspace" else row[name] == value
        for name, value in pick.items()
        if name in row
    )


@cache
def today() -> dict[tuple[str, ...], Row]:
    """Today's picks of LIST by case."""
    return {tuple(row[name] for name in CASE): row for row in stored(LIST)}


def gone(row: Row) -> bool:
    """Whether a row is of what was picked once, and LIST says that another is."""
    pick = today().get(tuple(row[name] for name in CASE)) if row.get("chosen") else None
    return pick is not None and not alike(row, pick)


def apart(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of cases whose pick is today's, and the rows of picks that are gone."""
    every = list(rows)
    lost = [row for row in every if gone(row)]
    cases = {key(row) for row in lost}
    return [row for row in every if key(row) not in cases], lost


def found() -> Iterator[Row]:
    """Today's picks of the cases whose rows are of others."""
    for row in chosen():
        p = picked(row)
        if not same(row, p):
            yield {name: row[name] for name in CASE} | told(p)


def main() -> None:
    """Write the list anew."""
    rewrite(LIST, found())
    today.cache_clear()
    print(f"{len(today())} of {len(chosen())} picks are gone")


if __name__ == "__main__":
    typer.run(main)
