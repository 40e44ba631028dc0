"""openCNN, section 4: what the paper says of its output layouts, and what is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from experiments.harness.counted import Count, cells, claim, row
from experiments.harness.facts import facts
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one
from experiments.harness.verdicts import Verdict
from papers.opencnn_2021.orders import (
    FIGURE13,
    FILTERS,
    named,
    readings,
    registers,
    round_bytes,
    stores_of_y,
    wide_orders,
)
from winolab.device import H100, Device, datasheet
from winolab.gpu.families.fused2d.banks import HOPPER, LANES, TURING, Cost, Timing, accesses
from winolab.gpu.families.fused2d.layouts import STATES, TILES, layouts

PAPER = "opencnn_2021"
# Statements whose numbers follow from Table 1, on which the model's cycles were fitted (fits.py).
FITTED = (
    "bytes a cycle of 128-bit stores by half of the lanes",
    "bytes a cycle of 64-bit stores by all",
)


def of(name: str) -> Cost:
    """A layout's figures in blocks of 64 filters, as the paper has them."""
    return Cost.of(named(name))


def statements() -> list[Row]:
    """The paper's statements of the layouts, each a number, and what the model counts."""
    said = facts(PAPER)["layouts"]
    yan, merged, compact = of("yan"), of("sts64_final"), of("compact")
    found = [
        claim("KB of Yan et al.'s buffer", said["yan_kb"], yan.layout.bytes / 1024, (40, 40)),
        claim("KB of the compact one", said["compact_kb"], compact.layout.bytes / 1024, (32, 32)),
        claim("rounds of the compact layout", said["rounds"], compact.layout.rounds, (4, 4)),
        claim("share of lanes that do nothing, Yan et al.", said["idle"], yan.stores.idle_share,
              (0.5, 0.5)),
        claim("bytes of padding, compact", 0, compact.padding, (0, 0)),
        *orders(),
        *(
            claim(f"bank conflicts, {cost.layout.name}", 0,
                  cost.stores.conflicts + cost.loads.conflicts, (0, 0))
            for cost in (yan, of("sts64"), merged, compact)
        ),
    ]  # fmt: skip
    model = "the model's cycles are those of Table 1"
    printed = (said["divergent"], said["full"])
    for text, number, cost in zip(FITTED, printed, (yan, compact), strict=True):
        counted = TURING.bytes_a_cycle(cost.stores, stores=True)
        row = claim(text, number, counted, (number, number), model)
        found.append(row | {"standing": Verdict.FITTED.value})
    return found


def orders() -> list[Row]:
    """Those of Figures 4 to 14 and the text about them."""
    said, yan, sts64 = facts(PAPER)["orders"], of("yan"), of("sts64")
    conflicts = sum(readings(named(name)).cost.conflicts for name in ("shuffled", "sts64"))
    lanes = [LANES * (1 - cost.stores.idle_share) for cost in (yan, sts64)]
    writes = stores_of_y(sts64.layout)

    def exactly(text: str, number: float, ours: float) -> Row:
        return claim(text, number, ours, (number, number))

    return [
        exactly("KB of a block's sums in registers", said["registers_kb"], registers() / 1024),
        *(
            exactly(f"KB that a round puts, {cost.layout.name}", said["round_kb"],
                    round_bytes(cost.layout) / 1024)
            for cost in (yan, sts64)
        ),
        *(
            exactly(f"transactions of a store of {32 * width} bits", said[f"store_{32 * width}"],
                    accesses(range(0, width * LANES, width), width).transactions)
            for width in (2, 4)
        ),
        exactly("threads that store at once, sts64 over yan", said["threads"], lanes[1] / lanes[0]),
        exactly("bytes that a warp reads of a state", said["read"],
                readings(sts64.layout).cost.bytes),
        exactly("bank conflicts of 32-bit loads, Figures 9 and 12", 0, conflicts),
        row("claim", "bank conflicts of a 64-bit load, Figure 13",
            wide_orders()[FIGURE13].conflicts, None, accepted=[1, None], claim=True),
        exactly("transactions of a warp's 64-bit store of y, Figure 14", said["written"],
                sum(writes.lines)),
    ]  # fmt: skip


LAYOUTS = Table(
    PAPER,
    "layouts",
    "Layouts of the output transform's buffer, Figures 4 to 14",
    lambda full: [Count(PAPER, "layouts", statements)],
    partial(cells, unit=1),
    "equal",
)


def cells_counted(rows: Sequence[Row]) -> list[Cell]:
    """What each layout of the kernel takes, counted, and its measured speed over Yan et al.'s."""
    if not rows:
        return []
    found, yan = [], measured(rows, "yan")
    for made in layouts(FILTERS):
        cost, speed = Cost.of(made), measured(rows, made.name)
        columns = {
            "KB": made.bytes / 1024,
            "transactions of stores": cost.stores.transactions,
            "transactions of loads": cost.loads.transactions,
            "bank conflicts": cost.stores.conflicts + cost.loads.conflicts,
            "idle lanes, %": 100 * cost.stores.idle_share,
            "bytes a cycle of stores": TURING.bytes_a_cycle(cost.stores, stores=True),
            "cycles on Turing": cost.cycles(),
            "cycles on an H100": cost.cycles(HOPPER),
        }
        found += [one(made.name, column, None, float(value)) for column, value in columns.items()]
        if both := speed.keys() & yan.keys():
            logs = [math.log(speed[case] / yan[case]) for case in both]
            gain = math.exp(sum(logs) / len(logs))
            found.append(one(made.name, "speed over Yan et al.'s", None, gain))
    return found + [
        one(f"sts64 over yan, {channels} channels", f"by the banks alone, {name}", None,
            by_banks(channels, device, timing))
        for channels in (64, 128, 256, 512)
        for name, device, timing in (
            ("RTX 2080 Ti", datasheet("rtx2080ti"), TURING), ("an H100", H100, HOPPER)
        )
    ]  # fmt: skip


def by_banks(channels: int, device: Device, timing: Timing) -> float:
    """The speedup of optSTS64 over Yan et al.'s layout where a block does one thing after another:
    products at the FFMA units' rate, then both phases of the output transform."""
    products = STATES * FILTERS * TILES * channels / device.lanes
    yan, sts64 = (products + of(name).cycles(timing) for name in ("yan", "sts64"))
    return yan / sts64


def measured(rows: Sequence[Row], name: str) -> dict[tuple[str, ...], float]:
    """TFLOPS of a layout by case and run: openCNN's layers in CHWN, 64 filters a block, pixels not
    loaded ahead."""
    return {
        (row["list"], row["layer"], str(row["batch"])): row["tflops"]
        for row in rows
        if row["list"] in ("opencnn", "layouts")
        and (row.get("output_layout"), row.get("bm"), row["layout"]) == (name, FILTERS, "CHWN")
        and "ahead" not in row["plan"]
    }


COUNTED = Table(
    PAPER,
    "counted",
    "What each layout takes, and its speed",
    none,
    cells_counted,
    "nothing is judged: the paper has no such table",
    sources=("fused2d",),
    values=("tflops",),
)
