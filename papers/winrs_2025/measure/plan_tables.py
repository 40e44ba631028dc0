"""WinRS's plan, our segments and what is picked, on a GPU: cells and the picture of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from experiments.gpu.rows import kernel, known
from experiments.harness.tables import Cell, one
from experiments.report.figures import INK, panels_of, with_legend
from papers.winrs_2025.measure.kinds import Layers, Row, fastest, flop, is_, layers, over, spread
from winolab.algorithm import Tile
from winolab.ref.error.metrics import ADMISSIBLE, ADMISSIBLE_IN_16_BITS, error_ratio

LARGE = 600e9  # FLOP: above it lie layers that other tables leave out
MOST = {"fp32": ADMISSIBLE, "fp16": ADMISSIBLE_IN_16_BITS}  # times direct's error, unasked


def cells_plans(rows: Sequence[Row]) -> list[Cell]:
    """WinRS's plan and what is picked over our segments, by work; workspaces over the data."""
    found: list[Cell] = []
    if not rows:
        return found
    every = layers(rows)
    for precision in dict.fromkeys(key[2] for key in every):
        mine = {key: rows for key, rows in every.items() if key[2] == precision}
        for name, chosen in _by_work(mine):
            for kind in ("winrs", "two launches", "direct", "picked"):
                ratios = [over(fastest(r, is_(kind)), fastest(r, is_("omega"))) for r in chosen]
                found += spread(f"{precision}, {name}", f"{kind} over omega", ratios)
            both = [over(fastest(r, is_("winrs")), fastest(r, is_("omega"))) for r in chosen]
            if known(both):
                note = f"of {len(known(both))} layers"
                faster = float(sum(ratio > 1 for ratio in known(both)))
                found.append(one(f"{precision}, {name}", "layers on which winrs is faster", None,
                                 faster, note=note))  # fmt: skip
            for kind in ("winrs", "omega"):
                shares = [row["of_data"] for r in chosen if (row := fastest(r, is_(kind)))]
                if shares:
                    text, average = f"{kind}'s workspace of the data", sum(shares) / len(shares)
                    note = f"{min(shares)} to {max(shares)}"
                    found.append(one(f"{precision}, {name}", text, None, average, note=note))
            found += _picks(f"{precision}, {name}", chosen)
    return found


def _picks(where_: str, chosen: Sequence[list[Row]]) -> Iterator[Cell]:
    """The default's speed over the fastest kind's, and over the fastest's whose error is admitted
    unasked; on how many layers the model has the same first."""
    for text, of in (("the fastest", list), ("the fastest admitted", _admitted)):
        first = [fastest(of(rows), lambda _: True) for rows in chosen]
        pairs = [
            (fastest(rows, is_("picked")), best) for rows, best in zip(chosen, first, strict=True)
        ]
        yield from spread(where_, f"picked over {text}", [over(*pair) for pair in pairs])
    same = sum(min(rows, key=_predicted) == fastest(rows, lambda _: True) for rows in chosen)
    yield one(where_, "layers on which the model's first is the fastest", None, float(same),
              note=f"of {len(chosen)} layers")  # fmt: skip


def _any(_: Row) -> bool:
    return True


def _predicted(row: Row) -> float:
    return row["predicted_us"]


def _admitted(rows: Sequence[Row]) -> list[Row]:
    """Those whose tiles' errors let the planner take them unasked, as its requests have it."""
    return [row for row in rows if _ratio(row) <= MOST[row["precision"]]]


def _ratio(row: Row) -> float:
    """The error of the worst of a row's tiles over direct products'."""
    every = (kernel(name) for name in row["kernel"].split(" and "))
    tiles = (Tile(n, r, 0 if alpha == n + r - 1 else alpha) for alpha, n, r in every if n * r > 1)
    return max((error_ratio(tile, row["points"]) for tile in tiles), default=1.0)


def _by_work(every: Layers) -> Iterator[tuple[str, list[list[Row]]]]:
    """All layers, and those above LARGE."""
    yield "all", list(every.values())
    large = [rows for key, rows in every.items() if flop(rows[0]) > LARGE]
    if large:
        yield f"above {LARGE / 1e9:.0f} GFLOP", large


def plans_picture(rows: Sequence[Row]) -> Figure:
    """WinRS's plan over ours, a point a layer, against work."""
    every = layers(rows)
    precisions = list(dict.fromkeys(key[2] for key in every))
    figure, panels = panels_of(1, len(precisions), (4.5 * len(precisions), 3.2), sharey=True)
    for panel, precision in zip(panels, precisions, strict=True):
        mine = [rows for key, rows in every.items() if key[2] == precision]
        work = [flop(rows[0]) / 1e9 for rows in mine]
        for kind, marker in (("winrs", "o"), ("picked", "x")):
            values = [over(fastest(r, is_(kind)), fastest(r, is_("omega"))) for r in mine]
            panel.plot(work, values, marker, markersize=4, label=kind)
        panel.axhline(1, color=INK, linewidth=0.6)
        panel.set(title=precision, xlabel="GFLOP", xscale="log")
    panels[0].set_ylabel("speed over our segments")
    return with_legend(figure, panels[0])
