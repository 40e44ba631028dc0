"""What calls and whole networks were to reach: copies between memory orders, what equal bits cost,
the host's time beside PyTorch's, steps of networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments.gpu.rows import Row, mean
from experiments.gpu.targets.aims import Part
from experiments.harness.tables import Cell
from experiments.measure import memory_order
from experiments.measure.host_cost import BETWEEN, GRADIENTS
from experiments.networks.told import by_case

Made = tuple[Part, Callable[[Part, Any], Iterator[Cell]], Sequence[Any]]
PRECISIONS = {"fp32": "FP32", "fp16": "FP16", "bf16": "BF16"}
TRANSPOSED = 0.85  # of copy speed
LINE = 16  # bytes of an aligned access
# Steps of whole networks over PyTorch's: geometric means in training, and the least of a network.
STEPS = {"fp32": 1.5, "fp16": 1.05, "bf16": 1.05}
STEP_LEAST, FORWARD_LEAST = {"fp32": 1.0, "fp16": 0.97, "bf16": 0.97}, 1.0
# More than nine tenths of whose products are in filters of 3×3 and larger.
WIDE = ("resnet18", "vgg16", "unet2d", "unet3d", "video_decoder")
NETWORKS = "Whole networks"
STEP_TF32 = 1.0
SINGLE, SINGLE_LEAST = "resnet18 of 1,", 1.0  # a small network's step of one image
BEYOND = 10.0  # µs of the host's, a call


def parts(rows: Sequence[Row]) -> list[Made]:
    """Parts of the aims, what makes their cells, and the rows that they are made of."""
    return [
        (Part("Copies to another memory order", "python -m experiments.measure.memory_order"),
         _copies, [row for row in rows if row.get("step") == "copies"]),
        (Part("Cost of batch_invariant=True", "python -m experiments.measure.host_cost"),
         _invariant, [row for row in rows if row.get("call") == "batch_invariant"]),
        (Part("Host's µs a call beyond PyTorch's", "python -m experiments.measure.host_cost"),
         _host, [row for row in rows if "host_us" in row and row["arrays"] == "torch"]),
        (Part(NETWORKS, "python -m experiments.networks.end_to_end"), _networks,
         [row for row in rows if {"network", "order", "ms"} <= row.keys()]),
    ]  # fmt: skip


def _copies(part: Part, mine: Sequence[Row]) -> Iterator[Cell]:
    shares: dict[str, dict[str, float]] = {}
    for (_, case), of in memory_order.cases(mine).items():
        shape, _, size, *_ = case.split()
        _, channels, *spatial = map(int, shape.split("x"))
        rows = (int(size) * channels, int(size) * math.prod(spatial))
        kind = "that are aligned" if not any(n % LINE for n in rows) else "that begin anywhere"
        found = shares.setdefault(f"elements of {size} bytes, rows {kind}", {})
        found[case] = of["copy"]["us"] / of["winolab"]["us"]
    for what, values in sorted(shares.items(), reverse=True):
        yield from part.over(what, values, TRANSPOSED, TRANSPOSED)


def _invariant(part: Part, mine: Sequence[Row]) -> Iterator[Cell]:
    took: dict[tuple[str, str], dict[bool, float]] = {}
    for row in mine:
        took.setdefault((row["of"], row["format"]), {})[row["invariant"]] = row["gpu_us"]
    for (layer, kind), us in took.items():
        if len(us) == 2:
            told = f"{us[False]:.1f} to {us[True]:.1f} µs"
            yield part.shown(f"3×3, {layer}", f"{kind}, times as long", us[True] / us[False], told)
    ratios = [us[True] / us[False] for us in took.values() if len(us) == 2]
    yield part.shown("all", "geometric mean", mean(ratios), f"{len(ratios)} layers")


def _host(part: Part, mine: Sequence[Row]) -> Iterator[Cell]:
    us = {row["call"]: row["host_us"] for row in mine}
    theirs = {f"torch.{call}": value for call, value in us.items() if GRADIENTS not in call}
    beyond = {call: us[call] - value for call, value in theirs.items() if call in us}
    for what, between in (("in a row", False), (BETWEEN.removeprefix(", "), True)):
        found = {call: value for call, value in beyond.items() if (BETWEEN in call) == between}
        if found:
            yield part.largest(what, BEYOND, found)


def _networks(part: Part, mine: Sequence[Row]) -> Iterator[Cell]:
    speeds: dict[tuple[str, str, str], dict[str, float]] = {}
    for (network, batch, kind, order, mode, step), of in by_case(mine).items():
        for peer in ("torch", "tf32"):
            if {peer, "winolab"} <= of.keys():
                found = speeds.setdefault((step, kind, peer), {})
                name = f"{network} of {batch}, channels {order}"
                name += ", compiled" if mode == "compiled" else ""
                found[name] = of[peer]["ms"] / of["winolab"]["ms"]
    for kind, name in PRECISIONS.items():
        training = speeds.get(("training", kind, "torch"), {})
        yield from part.over(f"training, {name}", training, STEPS[kind], STEP_LEAST[kind], "case")
        forward = speeds.get(("forward", kind, "torch"), {})
        yield from part.over(f"forward, {name}", forward, None, FORWARD_LEAST, "case")
    over = {name: value for name, value in speeds.get(("training", "fp32", "tf32"), {}).items()
            if name.startswith(WIDE)}  # fmt: skip
    yield from part.over("training, FP32 over TF32, filters of 3×3", over, STEP_TF32, None, "case")
    single = {f"{PRECISIONS[kind]} {name}": value
              for (step, kind, peer), found in speeds.items() for name, value in found.items()
              if (step, peer) == ("training", "torch") and name.startswith(SINGLE)}  # fmt: skip
    if single:
        yield part.smallest("training, ResNet-18 of one image", SINGLE_LEAST, single)
