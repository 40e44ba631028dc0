""" "paper" against best points, for α = 8 and 16, on positive, zero-mean and uneven data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.harness.jobs import Job, Row
from experiments.harness.outputs import Variant
from experiments.harness.published import DIGITS
from experiments.harness.tables import Cell, Table, interval, select
from experiments.harness.verdicts import at_least
from winolab.measure import FULL, Case

TITLE = "Points"
PAPER = "points"
TILES = ("gamma:8:6:3", "gamma:8:4:5", "gamma:16:10:7", "gamma:16:8:9")
ROW_SEEDS = 10
KINDS = ("u12", "u11", "normal", "relu", "wide")
LAYER_SEEDS = 2
CHANNELS = (64, 128, 256, 512)
LAYER = "gamma:16:8:9"
# The least gain asked of the default points at α = 16, on a row over 64 channels.
LEAST = {"u11": 4.5, "u12": 10.0}

VARIANTS = (
    Variant("paper, published order", "published"),
    Variant("paper, winolab's program", "program"),
    Variant("best, published order", "published", points="best"),
    Variant("best, winolab's program", "program", points="best"),
    Variant("direct", "direct"),
)
TYPED = Variant(f"paper, published order, {DIGITS} digits", "published", digits=DIGITS)
BEST = "best, winolab's program"


def jobs_rows(full: bool) -> list[Job]:
    """F(n, r) on rows over 64 channels, all outputs, ten seeds, every kind of data."""
    found = []
    for text in TILES:
        _, alpha, n, r = text.split(":")
        for data in KINDS:
            for seed in range(ROW_SEEDS):
                case = Case(
                    f"{text}@paper", f"4x{8 * int(n) + int(r) - 1}x64", f"16x{r}",
                    data=data, sample=FULL, seed=seed,
                )  # fmt: skip
                labels = {"paper": PAPER, "table": "rows", "tile": text, "kind": data}
                variants = VARIANTS if alpha == "8" else (*VARIANTS, TYPED)
                found.append(Job(tuple(labels.items()), case, variants, 32, 16))
    return found


def metric_of(data: str) -> str:
    """Positive data: mean relative error. Zero-mean data: relative RMS, as outputs near 0 occur."""
    return "mare" if data in ("u12", "u01") else "relative_rms"


def cells_rows(rows: Sequence[Row]) -> list[Cell]:
    """How many times less the best points lose than each other way, seed by seed."""
    found = []
    for text in TILES:
        for data in KINDS:
            mine = select(rows, tile=text, kind=data)
            if mine:
                found += _gains(text, data, mine)
    return found


def _gains(text: str, data: str, rows: Sequence[Row]) -> list[Cell]:
    metric = metric_of(data)
    names = list(dict.fromkeys(row["variant"] for row in rows))
    by_seed = {v: np.array([row[metric] for row in select(rows, variant=v)]) for v in names}
    expected = {v: select(rows, variant=v)[0][f"predicted_{metric}"] for v in names}
    _, alpha, n, r = text.split(":")
    found = []
    for variant, values in by_seed.items():
        gain = interval((values / by_seed[BEST]).tolist())
        least = LEAST.get(data) if alpha == "16" and variant == VARIANTS[0].name else None
        found.append(
            Cell(
                f"Γ{alpha}({n},{r}), {data}", f"{variant}, over best points", None, *gain,
                None if least is None else at_least(least), aim=least,
                prediction=float(expected[variant] / expected[BEST]),
                note=f"{metric} {values.mean():.3g}",
            )
        )  # fmt: skip
    return found


ROWS = Table(
    PAPER,
    "rows",
    "Interpolation points on rows over 64 channels",
    jobs_rows,
    cells_rows,
    "an aim of ours, not a paper's: at α = 16 the best points lose 4.5 times less on U[-1,1] and "
    "10 times less on U[1,2] than the papers' points in the published order, constants exact",
)


def jobs_layers(full: bool) -> list[Job]:
    """9 × 9 filters over 64 to 512 channels, positive and zero-mean data."""
    found = []
    for channels in CHANNELS:
        for data in ("u12", "u11"):
            for seed in range(LAYER_SEEDS):
                case = Case(
                    f"{LAYER}@paper", f"8x32x32x{channels}", f"{channels}x9x9", "4",
                    data=data, sample=FULL if full else "8192", seed=seed,
                )  # fmt: skip
                labels = {"paper": PAPER, "table": "layers", "tile": LAYER, "kind": data}
                labels["width"] = str(channels)
                variants = (*VARIANTS[:2], *VARIANTS[3:], TYPED)
                tiles = max(16, 32 * 64 // channels)
                found.append(Job(tuple(labels.items()), case, variants, tiles, 16))
    return found


def cells_layers(rows: Sequence[Row]) -> list[Cell]:
    """As cells_rows, by the number of channels."""
    found = []
    for channels in CHANNELS:
        for data in ("u12", "u11"):
            mine = select(rows, kind=data, width=str(channels))
            where = f", 9×9, {channels} channels"
            found += [
                replace(c, where=c.where + where, accepted=None, aim=None)
                for c in _gains(LAYER, data, mine)
            ]
    return found


LAYERS = Table(
    PAPER,
    "layers",
    "Interpolation points for 9 × 9 filters, 64 to 512 channels",
    jobs_layers,
    cells_layers,
    "reported, nothing asked",
)

TABLES = (ROWS, LAYERS)
