"""openCNN 2021: equation 3; layouts, speeds and the machine in files of their own."""

from __future__ import annotations

from functools import partial

from experiments.harness.counted import Count, cells, row
from experiments.harness.facts import facts, matrices
from experiments.harness.jobs import Row
from experiments.harness.tables import Table
from papers.opencnn_2021.layouts import COUNTED, LAYOUTS
from papers.opencnn_2021.machine import FIGURE16, FIGURE17, TABLE1A, TABLE1B
from papers.opencnn_2021.policies import BANKS, ERRORS, LOOP, POLICY, STEPS
from papers.opencnn_2021.search import SEARCH
from papers.opencnn_2021.speeds import FIGURE15, TABLE3, TABLE4
from papers.opencnn_2021.targets import TARGETS
from winolab.algorithm import Tile
from winolab.ref.algebra.program import program
from winolab.ref.algebra.transforms import Transforms, transforms

PAPER = "opencnn_2021"


def equation3() -> list[Row]:
    """Operations of F(2, 3), and its matrices beside those of the points."""
    printed, counted = matrices(PAPER, "eq3"), facts(PAPER)["counts"]
    n, r = printed["tile"]
    ours = transforms(n, r, ",".join(printed["points"]))
    theirs = Transforms(printed["AT"], printed["G"], printed["BT"])
    found = [program(m).counts for m in (ours.BT, ours.G, ours.AT)]
    data, filters, inverse = (c.additions + c.fmas for c in found)
    where = f"F({n},{r})"
    return [
        row(where, "multiplications", Tile(n, r).alpha, counted["multiplications"]),
        row(where, "direct's multiplications", n * r, counted["direct_multiplications"]),
        row(where, "direct's additions", n * (r - 1), counted["direct_additions"]),
        row(where, "additions", data + filters + inverse, counted["additions"],
            note="equation 3 has four of the data, four of the outputs, and those of the filter"),
        row(where, "additions with a transformed filter", data + inverse,
            counted["additions_with_transformed_filter"]),
        row(where, "matrices equivalent to those of the points", ours.equivalent(theirs), 1),
    ]  # fmt: skip


EQUATION3 = Table(
    PAPER,
    "equation3",
    "Operations and matrices of F(2, 3)",
    lambda full: [Count(PAPER, "equation3", equation3)],
    partial(cells, unit=1),
    "equal",
)
TABLES = (
    EQUATION3,
    LAYOUTS,
    COUNTED,
    SEARCH,
    TABLE1A,
    TABLE1B,
    TABLE3,
    TABLE4,
    FIGURE15,
    FIGURE16,
    FIGURE17,
    TARGETS,
    STEPS,
    POLICY,
    BANKS,
    ERRORS,
    LOOP,
)

# What writes these files, on a GPU.
COMMANDS = {
    "opencnn_authors": "python -m experiments.measure.published.opencnn",
    "fused2d": "python -m experiments.measure.fused.beside",
    "fused2d_errors": "python -m experiments.measure.fused.errors",
    "fused2d_wgmma_loop": "python -m experiments.measure.fused.wgmma_loop",
    "fused2d_left_out": "python -m experiments.measure.fused.left_out",
    "shared_memory": "python -m experiments.measure.fused.shared_memory",
}
