"""Layouts as good as openCNN's or better: ``python -m papers.opencnn_2021.search``. No GPU.

Rows of 128 bytes are turned by a multiple of each of the digits that say which row; every turn is
tried, and those are kept whose stores and loads meet no bank conflict
(``winolab/gpu/families/fused2d/banks.py``).
"""

from __future__ import annotations

from functools import cache, partial

import typer

from experiments.harness.counted import Count, cells, row
from experiments.harness.jobs import Row
from experiments.harness.tables import Table
from papers.opencnn_2021.layouts import PAPER
from papers.opencnn_2021.orders import FIGURE13, FILTERS, free_orders, wide_orders
from winolab.gpu.families.fused2d.banks import BANKS, TURING, Cost, Instructions, families
from winolab.gpu.families.fused2d.layouts import STATES, TILES, layouts


@cache
def found(name: str) -> tuple[int, list[dict[str, int]]]:
    """How many layouts a family has, and the turns of those without conflicts."""
    family = families(FILTERS)[name]
    turns = range(0, BANKS, family.layout.width)
    return len(turns) ** len(family.row), family.search(turns)


def matter(turns: list[dict[str, int]]) -> dict[str, list[tuple[int, ...]]]:
    """The digits that not every turn serves, with those that do, together."""
    names = [n for n in turns[0] if len({t[n] for t in turns}) < BANKS // 4]
    free = {tuple(t[n] for n in names) for t in turns}
    return {", ".join(names): sorted(free)}


def least() -> float:
    """Cycles of both phases that no layout can do without: all bytes loaded at 64 a cycle, and
    stored by 128-bit stores of all lanes."""
    size = 4 * STATES * FILTERS * TILES
    full = Instructions(size // 512, size // 128, size // 128, 0, size)
    return TURING.cycles(full, stores=True) + TURING.cycles(full, stores=False)


def counts() -> list[Row]:
    """What was tried, and what has no conflict."""
    found_ = []
    for name in families(FILTERS):
        tried, free = found(name)
        found_ += [row(name, "layouts tried", tried), row(name, "without conflicts", len(free))]
    return [
        *found_,
        row("64-bit loads", "orders tried", len(wide_orders())),
        row("64-bit loads", "without conflicts", len(free_orders())),
        row("any layout", "cycles on Turing at least", least()),
    ]


SEARCH = Table(
    PAPER,
    "search",
    "Layouts and orders of loads that a search finds",
    lambda full: [Count(PAPER, "search", counts)],
    partial(cells, unit=1),
    "nothing is judged: the paper has no such table",
)


def main() -> None:
    """Print what is found."""
    for name in families(FILTERS):
        tried, free = found(name)
        print(
            f"{name}: {len(free)} of {tried} layouts have no conflict, by turns of {matter(free)}"
        )
    for made in layouts(FILTERS):
        cost = Cost.of(made)
        print(
            f"{made.name:12} {made.bytes / 1024:5.1f} KB, {cost.stores.idle_share:.0%} idle lanes, "
            f"{cost.cycles():,.0f} cycles on Turing, {cost.cycles() / least():.2f} of the least"
        )
    print(
        f"64-bit loads: {len(free_orders())} of {len(wide_orders())} orders of a lane's bits have "
        f"no conflict, Figure 13's has {wide_orders()[FIGURE13].conflicts}"
    )


if __name__ == "__main__":
    typer.run(main)
