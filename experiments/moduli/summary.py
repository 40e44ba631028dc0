"""What docs/results.md says of moduli."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.harness.tables import rows_of
from experiments.moduli.tables import FORMATS, TABLES, TOLD, ours_of, own
from winolab.algorithm import parse_algorithm

COLUMNS = ("states", "saving", "gain", *FORMATS)


def sections() -> Iterator[tuple[str, list[str]]]:
    """A line an algorithm, with products of least noise where there are others."""
    known = {
        (row["where"], row["column"]): sum(row["ours"]) / len(row["ours"])
        for table in TABLES
        for row in rows_of(table)
    }
    if not known:
        return
    lines = [
        "Multiplications saved, noise gain and relative RMS error of zero-mean data over 64 "
        "channels, simulated, ten seeds. Minimal algorithms have as many states as inputs; one "
        "state more for each quadratic factor buys the accuracy (Barabasz & Gregg 2019). Run again "
        "by `winolab reproduce moduli`.",
        "",
        "| | modulus | states | saving | gain | FP32 | FP16 data |",
        "|---|---|---|---|---|---|---|",
    ]
    for told in TOLD.values():
        for line in told:
            name = line.where if own(line) == line.algorithm else ours_of(line)
            states, saving, gain, fp32, fp16 = (known[name, column] for column in COLUMNS)
            points = parse_algorithm(own(line)).points
            lines.append(
                f"| {line.where} | {points} | {states:.0f} | {saving:.2f} | "
                f"{float(f'{gain:.3g}'):,g} | {fp32:.1e} | {fp16:.1e} |"
            )
    yield "Moduli beyond points", lines
