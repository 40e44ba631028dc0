"""What the planner picks, before and after a change: ``python -m experiments.calibrate.picks``.

``--save FILE`` keeps the default picks of all cases that are measured and of LAYERS in every
direction and precision, with ``--networks`` of every layer of networks instead; ``--against FILE``
lists those that are others now, with both times where kept rows (experiments.calibrate.rows) have
them, and ``--changed FILE`` adds them to the list that experiments.measure.picks times side by side
on a GPU. No GPU is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import Annotated, Any

import typer

from experiments.calibrate.rows import name, rows
from experiments.harness.machines import stored
from experiments.measure.cases import cases
from winolab.algorithm import Problem
from winolab.bench.contenders import unnamed
from winolab.bench.networks import BatchedLayer, distinct
from winolab.device import Device, datasheet
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import DIRECTIONS
from winolab.lines import rewrite

GROUPS = ("fp32", "fp16", "bf16")
# Layers of networks, one sample to many: x without channels, filter, input and output channels,
# padding. VGG-16, ResNet-50, Inception-v3, MobileNet's 1 x 1, ConvNeXt's sizes, U-Net, wav2vec,
# C3D and a video decoder.
LAYERS: tuple[tuple[tuple[int, ...], tuple[int, ...], int, int, tuple[int, ...]], ...] = (
    ((16, 224, 224), (3, 3), 64, 64, (1, 1)),
    ((16, 112, 112), (3, 3), 64, 128, (1, 1)),
    ((16, 56, 56), (3, 3), 256, 256, (1, 1)),
    ((16, 28, 28), (3, 3), 512, 512, (1, 1)),
    ((16, 14, 14), (3, 3), 512, 512, (1, 1)),
    ((1, 224, 224), (3, 3), 64, 64, (1, 1)),
    ((1, 28, 28), (3, 3), 512, 512, (1, 1)),
    ((64, 56, 56), (3, 3), 64, 64, (1, 1)),
    ((64, 28, 28), (3, 3), 128, 128, (1, 1)),
    ((64, 14, 14), (3, 3), 256, 256, (1, 1)),
    ((64, 7, 7), (3, 3), 512, 512, (1, 1)),
    ((64, 56, 56), (1, 1), 256, 64, (0, 0)),
    ((64, 28, 28), (1, 1), 128, 512, (0, 0)),
    ((64, 7, 7), (1, 1), 2048, 512, (0, 0)),
    ((32, 17, 17), (1, 7), 160, 192, (0, 3)),
    ((32, 17, 17), (7, 1), 160, 192, (3, 0)),
    ((32, 35, 35), (5, 5), 48, 64, (2, 2)),
    ((32, 8, 8), (1, 3), 384, 384, (0, 1)),
    ((32, 35, 35), (3, 3), 64, 96, (1, 1)),
    ((8, 96, 96), (3, 3), 320, 320, (1, 1)),
    ((8, 48, 48), (3, 3), 640, 640, (1, 1)),
    ((2, 128, 128), (3, 3), 512, 512, (1, 1)),
    ((32, 32, 32), (5, 5), 128, 128, (2, 2)),
    ((32, 64, 64), (9, 9), 64, 64, (4, 4)),
    ((32, 64, 64), (7, 7), 96, 96, (3, 3)),
    ((16, 4000), (3,), 512, 512, (1,)),
    ((8, 16000), (5,), 128, 128, (2,)),
    ((4, 16, 56, 56), (3, 3, 3), 64, 64, (1, 1, 1)),
    ((1, 17, 60, 104), (3, 3, 3), 384, 384, (1, 1, 1)),
    ((32, 47, 47), (3, 3), 63, 65, (1, 1)),
)


def problems(networks: bool = False) -> Iterator[tuple[Problem, str, str]]:
    """Every problem with a direction and a group of precisions, once; ``networks``: theirs."""
    found = [] if networks else [(c.layer.problem, c.direction, c.group) for c in cases()]
    layers = [layer.problem for layer in distinct()] if networks else []
    for x, taps, channels, outputs, padding in () if networks else LAYERS:
        layers.append(Problem.of((*x, channels), (outputs, *taps, channels), padding=padding))
    found += product(layers, DIRECTIONS, GROUPS)
    return iter(dict.fromkeys(found))


def text(p: Problem) -> str:
    """A problem as winolab.bench.networks writes layers."""
    padding = tuple(sides[0] if len({*sides}) == 1 else sides for sides in p.padding)
    how = p.stride, padding, p.dilation, p.groups, p.batch
    return str(BatchedLayer(p.input, p.in_channels, p.out_channels, p.filter, *how))


def key(problem: Problem, direction: str, group: str, device: Device) -> str:
    """What a pick is kept by."""
    return f"{device.name}, {text(problem)}, {direction}, {group}"


def times() -> dict[str, dict[str, float]]:
    """Microseconds of plans by where and name, as kept rows have them."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows():
        where = key(row.layer.problem, row.direction, row.group, row.device)
        what = f"{row.kernel} {row.products} {row.variant}"
        found.setdefault(where, {}).setdefault(what, []).append(1e6 * row.seconds)
    return {
        where: {what: median(each) for what, each in plans.items()}
        for where, plans in found.items()
    }


def picks(device: Device, networks: bool = False) -> dict[str, dict[str, Any]]:
    """What the planner picks for every problem on ``device``: its name, workspace and time."""
    found = {}
    for problem, direction, group in problems(networks):
        where = key(problem, direction, group, device)
        try:
            p = plan(unnamed(direction, problem, group, device))
        except ValueError as error:
            found[where] = {"name": f"none: {error}"}
            continue
        found[where] = {
            "name": name(p), "workspace": p.workspace, "us": round(p.predicted * 1e6, 2),
        }  # fmt: skip
    return found


def pair(where: str, old: dict[str, Any], new: dict[str, Any], step: str) -> dict[str, Any]:
    """A line of the list that experiments.measure.picks times."""
    said = dict(zip(("device", "layer", "direction", "precision"), where.split(", "), strict=True))
    sides = {"before": old, "after": new}
    return {"step": step, **said, **{s: [p["name"], p["workspace"]] for s, p in sides.items()}}


def main(
    save: Annotated[Path | None, typer.Option(help="File that picks are written to.")] = None,
    against: Annotated[Path | None, typer.Option(help="File of picks to compare with.")] = None,
    devices: Annotated[str, typer.Option(help="Names with commas.")] = "h100,h200",
    networks: Annotated[bool, typer.Option("--networks", help="Networks' layers.")] = False,
    list_: Annotated[Path | None, typer.Option("--changed", help="File of changed picks.")] = None,
    step: Annotated[str, typer.Option(help="What changed, in that file.")] = "",
) -> None:
    """List the default picks, or those that changed."""
    every = [picks(datasheet(device), networks) for device in devices.split(",")]
    found = {where: pick for each in every for where, pick in each.items()}
    if save:
        save.write_text(json.dumps(found, indent=0))
    if not against:
        return
    before, measured, ratios = json.loads(against.read_text()), times(), []
    changed = {k: (before[k], v) for k, v in found.items() if before[k]["name"] != v["name"]}
    for where, (old, new) in sorted(changed.items()):
        before_us, now_us = (measured.get(where, {}).get(each["name"]) for each in (old, new))
        took = "not measured"
        if before_us and now_us:
            ratios.append(now_us / before_us)
            took = f"{before_us:.1f} -> {now_us:.1f} µs, {ratios[-1]:.3f} times"
        print(f"{where}: {old['name']} -> {new['name']}: {took}")
    if list_:
        kept = [row for row in stored(list_) if row["step"] != step]
        ran = {where: both for where, both in changed.items() if all("us" in p for p in both)}
        rewrite(list_, kept + [pair(where, *both, step) for where, both in sorted(ran.items())])
    print(f"{len(changed)} of {len(found)} picks changed, {len(ratios)} have both times")
    if ratios:
        print(f"new over old: geometric mean {geometric_mean(ratios):.4f}, most {max(ratios):.3f}")


if __name__ == "__main__":
    typer.run(main)
