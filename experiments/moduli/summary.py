"""What docs/results.md says of moduli."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean

from experiments.harness.jobs import Row
from experiments.harness.tables import rows_of, stored
from experiments.moduli.tables import FORMATS, TABLES, TOLD, ours_of, own
from winolab.algorithm import parse_algorithm

# Kernels with moduli beside minimal ones of the same filter: names as rows have them.
PAIRS = (
    ("Γ9(6,3)", "Γ8(6,3)"),
    ("Γ12(6,5)", "Γ8(4,5)"),
    ("Γ15(6,7)", "Γ16(10,7)"),
    ("Γ19(8,9)", "Γ16(8,9)"),
    ("F(6×6,3×3;9×9)", "F(4×4,3×3)"),
    ("F(7×7,3×3;10×10)", "F(4×4,3×3)"),
    ("F(8×8,3×3;12×12)", "F(4×4,3×3)"),
    ("F(6×6,5×5;12×12)", "F(3×3,5×5)"),
    ("F(8×8,9×9;19×19)", "F(3×3,3×3)"),
    ("F(8×8,9×9;19×19)", "Γ16(8,9)"),
    ("F(1×6×6,1×3×3;1×9×9)", "F(1×4×4,1×3×3)"),
    ("Ω9(3,6)", "Ω8(3,6)"),
    ("Ω12(5,6)", "Ω8(5,4)"),
    ("Ω12(5,6)", "Ω10(5,6)"),
    ("Ω15(7,6)", "Ω9(7,3)"),
    ("Ω15(7,6)", "Ω16(7,10)"),
    ("Ω19(9,8)", "Ω9(3,7)"),
    ("Ω19(9,8)", "Ω16(9,8)"),
)
ARITHMETICS = {"fp32": "FFMA", "fp32_split": "split FP32", "fp16": "FP16", "bf16": "BF16"}
COLUMNS = ("states", "saving", "gain", *FORMATS)


def sections() -> Iterator[tuple[str, list[str]]]:
    """A line an algorithm, with products of least noise where there are others."""
    known = {
        (row["where"], row["column"]): sum(row["ours"]) / len(row["ours"])
        for table in TABLES
        for row in rows_of(table)
    }
    if known:
        yield "Moduli beyond points", _algorithms(known)
    if lines := _kernels([*stored("nested"), *gradients()]):
        yield "Moduli in kernels", lines


def _algorithms(known: Mapping[tuple[str, str], float]) -> list[str]:
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
    return lines


def gradients() -> list[Row]:
    """Rows of filter gradients, with the names that nested kernels' rows have."""
    return [
        {
            **row, "x": row["input"], "w": row["filter"], "group": row["precision"],
            "us": row["cold_us"], "relative_rms_n01": row.get("relative_rms_u11"),
        }
        for row in stored("omega_moduli")
    ]  # fmt: skip


def _kernels(rows: Sequence[Row]) -> list[str]:
    """A line a pair and arithmetic: time and error with moduli over the minimal kernel's."""
    found = list(pairs(rows))
    if not found:
        return []
    gpus = ", ".join(sorted({row["device"] for row in rows}))
    lines = [
        f"Kernels whose algorithms have quadratic factors, beside minimal ones, on an {gpus}: cold "
        "L2 cache, the filter's transform included; errors are relative RMS. Geometric means, in "
        "brackets the least and the most. Γ is fused, F nested, both forward on normal data. Ω are "
        "filter gradients on data uniform on [-1, 1), in two launches but on FFMA. By default "
        "calls take F and Ω with moduli where they are the fastest whose error is admitted, and "
        "neither Ω16 nor Γ with moduli. Run again by `python -m experiments.measure.nested` and "
        "`python -m experiments.measure.ways.omega_moduli`.",
        "",
        "| with moduli | minimal | products | layers | time over that | error over that |",
        "|---|---|---|---|---|---|",
    ]
    for ours, minimal, products, times, errors in found:
        lines.append(
            f"| {ours} | {minimal} | {products} | {len(times)} | {_ends(times, '.2f')} | "
            f"{_ends(errors, '.2g')} |"
        )
    return lines


def _ends(values: Sequence[float], shown: str) -> str:
    ends = f" ({min(values):{shown}} to {max(values):{shown}})" if len(values) > 1 else ""
    return f"{geometric_mean(values):{shown}}{ends}"


def pairs(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, list[float], list[float]]]:
    """Each pair's names and arithmetic, then times and errors over the minimal kernel's, a number
    a layer; a nested kernel beside a fused one has split products, that one FFMA's."""
    of: dict[tuple, dict[tuple[str, str], Row]] = {}
    for row in rows:
        if row["method"] == "winolab":
            layer = str(row["x"]), str(row["w"]), row["direction"], row["group"]
            of.setdefault(layer, {})[row["kernel"], row["products"]] = row
    for ours, minimal in PAIRS:
        for products, name in ARITHMETICS.items():
            mixed = ours[0] == "F" and minimal[0] == "Γ"
            if mixed and products != "fp32_split":
                continue
            other = "fp32" if mixed else products
            both = [
                (mine[ours, products], mine[minimal, other])
                for mine in of.values()
                if {(ours, products), (minimal, other)} <= mine.keys()
            ]
            if both:
                yield (
                    ours, minimal, f"{name} over FFMA" if mixed else name,
                    [a["us"][1] / b["us"][1] for a, b in both],
                    [a["relative_rms_n01"] / b["relative_rms_n01"] for a, b in both],
                )  # fmt: skip
