"""What was to be reached on Tensor Cores, forward and backward, and by filter gradients."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from experiments.gpu.bounds import GRADIENT_AIM
from experiments.gpu.rows import Measured, Row, data_bytes, paper_alpha, tiles
from experiments.gpu.targets.aims import (
    DATA,
    FILTER,
    FORWARD,
    GRID,
    OMEGA_AIMS,
    Part,
    anyone,
    errors,
    ffma,
    frugal,
    gemm,
    library,
    limits,
    ours,
    quotients,
    speeds,
    split,
    tf32,
    transformed,
)
from experiments.harness.tables import Cell
from winolab.bench.contenders import FRUGAL, entered
from winolab.bench.layers import parse_layer
from winolab.device import datasheet
from winolab.gpu.planner.accuracy import correlation_rms, predicted_rms
from winolab.gpu.planner.base_plan import WHOLE_SUMS
from winolab.gpu.planner.request import DTYPES, Plan
from winolab.ref.error.predict import Moments

Cases = Callable[..., list[Measured]]
SPEED = "python -m experiments.measure.throughput"
FOUR = {
    "128x96x96x64:64x3x3": 270,
    "128x48x48x128:128x3x3": 330,
    "128x24x24x256:256x3x3": 350,
    "128x12x12x512:512x3x3": 350,
}
SCALES = 1 << 16  # bytes that scales may take beside a transformed filter


def correlations(rows: Sequence[Row], pick: Cases) -> Iterator[Cell]:
    """Aims of split products and of 16 bits, forward and backward data."""
    part = Part("Split", f"{SPEED} --lists dragon")
    four = {c.name: c for c in pick(FORWARD, "fp32", "dragon") if c.name in FOUR}
    for name, least in FOUR.items():
        row = four[name].split if name in four else None
        yield part.least(f"{name}, TFLOPS", "ours", least, row["tflops"] if row else math.nan)
    mine = list(four.values())
    what = "four 3×3, over cuDNN FP32 of any workspace"
    yield from part.over(what, speeds(mine, split, anyone), None, 3.0)
    yield from part.over("four 3×3, over TF32", speeds(mine, split, tf32), 1.0, None)
    yield from _everywhere(pick)
    yield from _accuracy(rows, pick)
    for group in ("fp16", "bf16"):
        part = Part(group.upper(), f"{SPEED} --lists dragon,table3,grid,resnet,resnet1,pointwise")
        for direction in (FORWARD, DATA):
            found = speeds(pick(direction, group), ours, library)
            aim = 1.0 if group == "fp16" else None
            yield from part.over(f"over cuDNN and PyTorch, {direction}", found, aim, None)


def _everywhere(pick: Cases) -> Iterator[Cell]:
    grid = pick(FORWARD, "fp32", *GRID)
    for name, of in (("Picked", ours), ("Split", split)):
        part = Part(name, f"{SPEED} --lists dragon,table3,grid,resnet,resnet1")
        narrow = [c for c in grid if c.layer.taps <= 7]
        aims = (2.5, 1.0) if name == "Picked" else (None, None)
        what = "over cuDNN FP32 of any workspace"
        for lists, mine in (
            ("widths 2 to 7 and ResNet", [*narrow, *pick(FORWARD, "fp32", "resnet", "resnet1")]),
            ("ResNet, N = 32", pick(FORWARD, "fp32", "resnet")),
            ("ResNet, N = 1", pick(FORWARD, "fp32", "resnet1")),
        ):
            every = aims if "widths" in lists else (None, aims[1])
            yield from part.over(f"{what}, {lists}", speeds(mine, of, anyone), *every)
        wide = [c for c in grid if c.layer.taps > 7]
        yield from part.over(f"{what}, widths 8 and 9", speeds(wide, of, anyone), None, None)


def _accuracy(rows: Sequence[Row], pick: Cases) -> Iterator[Cell]:
    for direction in (FORWARD, DATA):
        mine = pick(direction, "fp32")
        for name, of in (("Picked", ours), ("Split", split)):
            part = Part(name, SPEED)
            shares = quotients(mine, "relative_rms_u11", of, gemm)
            yield part.largest(f"relative RMS over cuDNN's FP32 GEMM, {direction}", 1.0, shares)
            found = {c.name: float(row["mare_u12"]) for c in mine
                     if (row := of(c)) and "mare_u12" in row}  # fmt: skip
            yield part.largest(f"MARE on U[1, 2], {direction}", 6e-7, found)
    part = Part("Split", "python -m experiments.measure.errors")
    for data, words in (("relu", "after ReLU"), ("wide", "of wide exponents")):
        mine = errors(rows, data=data, points="best", products="fp32_split")
        theirs = errors(rows, data=data, method="cudnn", products="fp32")
        shares = {
            name: row["relative_rms"] / theirs[name]["relative_rms"]
            for name, row in mine.items()
            if name in theirs
        }
        yield part.largest(f"relative RMS over FP32 direct's, data {words}", 2.0, shares)
    yield from _predictions(pick)
    part = Part("Split", SPEED)
    used = {
        c.name: row["workspace"] / (transformed(c, row) + SCALES)
        for c in pick(FORWARD, "fp32")
        if (row := c.fused)
    }
    what = "workspace over the transformed filter and scales, transforms in one kernel"
    yield part.largest(what, 1.0, used)
    # What transforms apart takes more, and gains.
    nested = [c for c in pick(FORWARD, "fp32") if c.ours and c.ours["kernel"].startswith("F(")]
    part = Part("Picked", SPEED)
    for word, below in (("data", data_bytes), ("cuDNN's fastest of any workspace", _theirs)):
        found = {c.name: c.ours["workspace"] / below(c) for c in nested if c.ours and below(c)}
        yield from part.over(f"nested, workspace over {word}", found, None, None)
    gained = speeds(nested, ours, lambda c: c.fused)
    yield from part.over("nested, over transforms in one kernel", gained, None, None)


def _theirs(c: Measured) -> int:
    return (c.any or {}).get("workspace") or 0


UNIFORM = Moments(0.0, 1 / 3, roundoff=1 / 7)  # U[-1, 1)
OFF = 0.2  # an error is within so much of the reference's prediction


def _predictions(pick: Cases) -> Iterator[Cell]:
    """Cells for what the calls pick, in 16 bits; in FP32 also for what they do not."""
    for name, group, of in (
        ("Split", "fp32", split),
        ("FFMA", "fp32", ffma),
        ("FP16", "fp16", ours),
        ("BF16", "bf16", ours),
    ):
        part, off = Part(name, SPEED), {}
        for direction in (FORWARD, DATA):
            for c in pick(direction, group, *GRID, "resnet", "resnet1", "odd", "pointwise"):
                if not (row := of(c)) or "relative_rms_u11" not in row:
                    continue
                made = tuple(tiles(row["kernel"]))
                if any(c.layer.taps % t.r for t in made):
                    continue
                run = row.get("simulated", row["products"])
                expected = correlation_rms(
                    c.layer.problem, direction, made, row["points"], run, DTYPES[group], UNIFORM,
                    _split_sums(row),
                )  # fmt: skip
                off[f"{c.name} {direction}"] = row["relative_rms_u11"] / expected
        away = {place: abs(value - 1) for place, value in off.items()}
        what = "relative RMS off the reference's prediction"
        if name != "FFMA":
            yield part.largest(what, OFF, away)
        yield from part.over("relative RMS over the prediction", off, None, None)


def _split_sums(row: Mapping[str, Any]) -> tuple[tuple[float, int], ...]:
    """The parts of a kernel's sums; of Γ on FFMA units, whose clusters share some work tiles, a row
    does not say which."""
    parts = re.search(r"\bsplit_k=(\d+)", row.get("plan", ""))
    if not parts or (row["products"] == "fp32" and not row["kernel"].startswith("F")):
        return WHOLE_SUMS
    return ((1.0, int(parts[1])),)


def gradients(pick: Cases) -> Iterator[Cell]:
    """Aims of filter gradients, over the seeded sample of WinRS's grid."""
    part = Part("Gradient", f"{SPEED} --lists winrs")
    full = pick(FILTER, "fp32", "winrs")
    yield from part.over("FFMA over cuDNN's GEMM class", speeds(full, ffma, frugal), 3.0, 1.3)
    yield part.smallest("FFMA, share of Φ·SGEMM", GRADIENT_AIM, limits(full, ffma))
    yield from part.over("FFMA, share of Φ·SGEMM", limits(full, ffma), None, None)
    yield from part.over("FP32 over cuDNN's GEMM class", speeds(full, ours, frugal), 6.0, None)
    ahead = speeds(full, ours, anyone)
    yield from part.over("FP32 over cuDNN FP32 of any workspace", ahead, 2.0, None)
    share = sum(value > 1 for value in ahead.values()) / len(ahead) if ahead else math.nan
    yield part.least("FP32 faster than any cuDNN FP32", "share of layers", 0.9, share)
    yield from part.over("FP32 over TF32", speeds(full, ours, tf32), None, None)
    fastest = speeds(full, split, anyone)
    what = "split, any workspace, over cuDNN FP32 of any workspace"
    yield from part.over(what, fastest, None, None)
    yield from part.over("TF32's relative RMS over FP32's",
                         quotients(full, "relative_rms_u11", tf32, ours), None, None)  # fmt: skip
    for label, group, of in (
        ("FFMA", "fp32", ffma),
        ("FP32", "fp32", ours),
        ("FP16", "fp16", ours),
        ("BF16", "bf16", ours),
    ):
        used = [
            row["workspace"] / data_bytes(c) for c in pick(FILTER, group, "winrs") if (row := of(c))
        ]
        average = sum(used) / len(used) if used else math.nan
        yield part.most(f"{label}, workspace over data", "average", 0.18, average)
    for group in ("fp16", "bf16"):
        half = pick(FILTER, group, "winrs")
        for taps, least in (((3, 5), 1.0), ((7, 9), 1.5)):
            mine = [c for c in half if c.layer.taps in taps]
            names = " and ".join(f"{r}×{r}" for r in taps)
            what = f"{group.upper()} {names}, over cuDNN and PyTorch"
            aim = least if group == "fp16" else None
            yield from part.over(f"{what}, admissible", speeds(mine, ours, library), aim, None)
            anyhow = speeds(mine, lambda c: c.ours_any, library)
            yield from part.over(f"{what}, any error", anyhow, None, None)
            small = speeds(mine, within, library)
            yield from part.over(f"{what}, workspace of {FRUGAL}", small, None, None)
    yield from _gradient_errors(part, pick)
    yield from _gradient_predictions(pick)


def within(c: Measured) -> Row | None:
    """The fastest of ours whose workspace is at most FRUGAL of the data."""
    limit = FRUGAL * data_bytes(c)
    return c.fastest(lambda r: r["method"] == "winolab" and r["workspace"] <= limit)


def _gradient_errors(part: Part, pick: Cases) -> Iterator[Cell]:
    for group in ("fp32", "fp16", "bf16"):
        mine = pick(FILTER, group, "winrs")
        found = [(c, row) for c in mine for row in c.rows if row["method"] == "winolab"]
        for alpha in (8, 16):
            errors = {
                f"{c.name} {row['kernel']} {row['products']}": row["mare_u01"]
                for c, row in found
                if paper_alpha(row["kernel"]) == alpha and isinstance(row.get("mare_u01"), float)
            }
            what = f"{group.upper()} Ω{alpha}, MARE on U[0, 1]"
            if aim := OMEGA_AIMS.get((group, alpha)):
                yield part.largest(what, aim, errors)
            elif errors:
                yield part.shown(what, "largest", max(errors.values()), f"{len(errors)} results")
        shares = quotients(mine, "relative_rms_u11", ours, gemm)
        yield from part.over(f"{group.upper()}, relative RMS over cuDNN's GEMM", shares, None, None)
        if group != "fp32":
            infinite = [row for _, row in found if isinstance(row.get("mare_u01"), str)]
            count = len(infinite) if found else math.nan
            what = f"{group.upper()}, results not finite"
            yield part.most(what, "number", 0, count, f"{len(found)} results")


PRODUCTS = {"fp32": "FFMA", "fp32_split": "split", "fp16": "FP16", "bf16": "BF16"}


@cache
def _planned(layer: str, group: str, device: str) -> dict[tuple, Plan]:
    """What the planner makes of a gradient today, by what a row says of it; a row does not say how
    a sum was cut. Nothing for a GPU without a datasheet."""
    with suppress(ValueError):
        found = entered(FILTER, parse_layer(layer).problem, group, None, datasheet(device))
        return {(p.kernel, p.precision, str(p.config), p.workspace): p for p in found}
    return {}


def _gradient_predictions(pick: Cases) -> Iterator[Cell]:
    part, gone = Part("Gradient", SPEED), 0
    off: dict[str, dict[str, float]] = {}
    for c in (c for group in ("fp32", "fp16", "bf16") for c in pick(FILTER, group)):
        for row in c.rows:
            if row["method"] != "winolab" or not isinstance(row.get("relative_rms_u11"), float):
                continue
            of = row["kernel"], row["products"], row.get("plan"), row["workspace"]
            if not (p := _planned(c.name, c.group, row["device"]).get(of)):
                gone += 1
                continue
            kind = f"{PRODUCTS[row['products']]}, {'Ω' if tiles(row['kernel']) else 'direct'}"
            name = f"{c.name} {' '.join(map(str, of))} B"
            off.setdefault(kind, {})[name] = row["relative_rms_u11"] / predicted_rms(p, UNIFORM)
    away = {name: abs(v - 1) for mine in off.values() for name, v in mine.items()}
    what = "relative RMS off the reference's prediction"
    yield part.largest(what, OFF, away)
    for kind, mine in off.items():
        yield from part.over(f"relative RMS over the prediction, {kind}", mine, None, None)
    if gone:
        yield part.shown(what, "results left out", gone, "their plans are not made any more")


def wide(every: Sequence[Measured]) -> list[str]:
    """A sentence on 8 and 9 taps, where cuDNN's FFT leads."""
    mine = [c for c in every if (c.direction, c.group) == (FORWARD, "fp32") and c.layer.taps > 7]
    found = {
        "winolab picks": [row["tflops"] for c in mine if (row := c.ours)],
        "split products": [row["tflops"] for c in mine if (row := c.split)],
        "Γ16 on FFMA": [row["tflops"] for c in mine if (row := c.ffma)],
        "cuDNN's FFT tiling": [row["tflops"] for c in mine if (row := c.cudnn("FFT_TILING"))],
    }
    ranges = [f"{name} {min(v):.0f} to {max(v):.0f}" for name, v in found.items() if v]
    return [f"8 and 9 taps, FP32, TFLOPS over the shapes: {', '.join(ranges)}."] if mine else []
