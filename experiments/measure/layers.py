"""On a GPU: layers of networks, some or all, beside PyTorch's convolutions and a copy.

``python -m experiments.measure.layers depthwise [--seconds S]`` measures a list of LISTS in its
directions and all precisions and replaces the rows of experiments/results/<list>.jsonl that it
measured anew. A row has quartiles in microseconds with a cold L2 cache, interleaved with the others
of its case: ``winolab`` is what the planner picks (``chosen``) and, of depthwise 7 taps, the next
plans by prediction, of other vectors or columns; ``torch`` each memory order in benchmark mode,
``tf32`` the same with TF32; ``copy`` a copy on the device that moves as many bytes; with
``--cudnn``, which takes up cases that lack such a row, ``cudnn`` the fastest of cuDNN's algorithms,
each tried in both memory orders: PyTorch's benchmark mode tries ten of those that cuDNN's
heuristics name (``torch.backends.cudnn.benchmark_limit``). With ``--clock``, which takes up cases
that lack it, the planner's rivals are timed before, as ``winolab.torch.warmup(measure=True)`` does:
``rivals`` of the picked row says how many there were, and ``clock`` is the row of another that
won, timed once more beside everybody. Errors are relative RMS against PyTorch
in FP64. ``--summary`` shows ratios of the rows that are there, ``--list h200`` every case and what
is picked of it on that GPU, both without one.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.calibrate.gone import apart, same
from experiments.harness.facts import ROOT
from experiments.harness.machines import shortened, stored
from experiments.measure.layer_rows import Row, key, latest, summarized, there
from experiments.measure.picks import by_clock, near
from experiments.measure.throughput import compile_all, lost
from winolab.algorithm import Problem
from winolab.bench.compare import fastest_of_cudnn, free
from winolab.bench.contenders import Arrays, digest, ours, unnamed
from winolab.bench.frameworks import frameworks, relative_rms
from winolab.bench.networks import BatchedLayer, distinct, parse
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.device import Device, datasheet
from winolab.gpu import driver
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DIRECTIONS, Plan
from winolab.lines import Lines, rewrite
from winolab.spread import pool

RESULTS = ROOT / "experiments" / "results"
ROUNDS, OTHERS = 7, {7: 3}  # plans beside the pick, by taps of depthwise layers
COMPILED = 32  # cases whose kernels are compiled at a time
# Multiply-adds of a layer that comes after all others, without errors: PyTorch takes minutes of a
# video decoder's (2.3e12) in FP64, and in FP32 until its benchmark mode has chosen.
LONG = 4e11
PRECISIONS = ("fp32", "fp16", "bf16")
EACH = 2.5  # seconds that a case took, its kernels' compiling included
Case = tuple["Layer | BatchedLayer", str, str]  # with its direction and precision


@dataclass(frozen=True)
class Layer:
    """A layer by its input: square maps and filters.

    ``filters`` is the number of output channels, None of a depthwise layer; ``padding`` is half of
    the dilated filter by default.
    """

    networks: str
    size: int
    channels: int
    taps: int
    stride: int = 1
    batch: int = 32
    filters: int | None = None
    dilation: int = 1
    padding: int | None = None
    groups: int = 1  # of a layer that is not depthwise

    @property
    def problem(self) -> Problem:
        """The layer's shapes."""
        half = self.dilation * (self.taps - 1) // 2
        groups = self.groups if self.filters else self.channels
        of_group = self.channels // groups
        return Problem.of(
            (self.batch, self.size, self.size, self.channels),
            (self.filters or self.channels, self.taps, self.taps, of_group),
            padding=half if self.padding is None else self.padding,
            stride=self.stride,
            dilation=self.dilation,
            groups=groups,
        )

    @property
    def group(self) -> str:
        """What it is summed up with."""
        if not self.filters:
            return f"{self.taps}x{self.taps}"
        if self.groups > 1:
            return "grouped"
        if self.dilation > 1:
            return "dilated"
        return "strided" if self.stride > 1 else f"{self.taps}x{self.taps}"

    def __str__(self) -> str:
        stride = f"/{self.stride}" if self.stride > 1 else ""
        filters = f"{self.filters}x" if self.filters else ""
        dilation = f" dilation {self.dilation}" if self.dilation > 1 else ""
        padding = "" if self.padding is None else f" padding {self.padding}"
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        maps = f"{self.batch}x{self.size}x{self.size}x{self.channels}"
        return f"{maps}:{filters}{self.taps}x{self.taps}{stride}{dilation}{padding}{groups}"


def _strided(
    networks: str, size: int, channels: int, filters: int, taps: int, stride: int = 1, **more: int
) -> Layer:
    return Layer(networks, size, channels, taps, stride, filters=filters, **more)


# Every distinct depthwise layer of MobileNet-v3-Large (M), EfficientNet-B0 (E) and ConvNeXt-T (C).
OF_NETWORKS = (
    Layer("C", 56, 96, 7), Layer("C", 28, 192, 7), Layer("C", 14, 384, 7), Layer("C", 7, 768, 7),
    Layer("E", 112, 32, 3), Layer("E", 112, 96, 3, 2), Layer("E", 56, 144, 3),
    Layer("E", 56, 144, 5, 2), Layer("E", 28, 240, 5), Layer("ME", 28, 240, 3, 2),
    Layer("ME", 14, 480, 3), Layer("E", 14, 480, 5), Layer("E", 14, 672, 5),
    Layer("ME", 14, 672, 5, 2), Layer("E", 7, 1152, 5), Layer("E", 7, 1152, 3),
    Layer("M", 112, 16, 3), Layer("M", 112, 64, 3, 2), Layer("M", 56, 72, 3),
    Layer("M", 56, 72, 5, 2), Layer("M", 28, 120, 5), Layer("M", 14, 200, 3),
    Layer("M", 14, 184, 3), Layer("M", 14, 672, 3), Layer("M", 7, 960, 5),
)  # fmt: skip
SINGLE = tuple(
    Layer(v.networks, v.size, v.channels, v.taps, v.stride, 1)
    for v in OF_NETWORKS[:16:2] + OF_NETWORKS[1:16:4]
)
DEPTHWISE = (*OF_NETWORKS, *SINGLE)
# Causal, large, dilated, of three dimensions: apart, as other kinds than aims are set for.
_KINDS = Path(__file__).with_name("depthwise_kinds.txt").read_text("utf-8")
KINDS = tuple(map(parse, re.findall(r"(?m)^\d\S+", _KINDS)))

# Layers of ResNet-50 (R), Inception-v3 (I), MobileNet-v3 (M), ConvNeXt-T (C), DeepLab-v3 (D) and
# other shapes (O): strides, dilation and 1 × 1.
STRIDED = (
    _strided("R", 56, 128, 128, 3, 2), _strided("R", 28, 256, 256, 3, 2),
    _strided("R", 14, 512, 512, 3, 2), _strided("R", 56, 256, 512, 1, 2),
    _strided("R", 28, 512, 1024, 1, 2), _strided("R", 14, 1024, 2048, 1, 2),
    _strided("R", 224, 3, 64, 7, 2),
    _strided("I", 35, 288, 384, 3, 2, padding=0), _strided("I", 17, 192, 320, 3, 2, padding=0),
    _strided("M", 112, 16, 32, 3, 2), _strided("C", 56, 96, 192, 2, 2, padding=0),
    _strided("C", 224, 3, 96, 4, 4, padding=0),
    _strided("D", 65, 256, 256, 3, batch=4, dilation=2),
    _strided("D", 65, 512, 512, 3, batch=4, dilation=4),
    _strided("D", 33, 2048, 256, 3, batch=4, dilation=12),
    _strided("R", 56, 64, 256, 1), _strided("R", 56, 256, 64, 1),
    _strided("R", 28, 512, 128, 1), _strided("R", 14, 256, 1024, 1),
    _strided("R", 14, 1024, 256, 1), _strided("R", 7, 2048, 512, 1),
    _strided("O", 56, 64, 96, 5, 2), _strided("O", 56, 256, 256, 3, 2, batch=1),
    _strided("O", 224, 8, 96, 4, 4, padding=0), _strided("O", 28, 1536, 384, 1, batch=8),
)  # fmt: skip
# Every distinct grouped layer of ResNeXt-50 32x4d (X), and of AlexNet, RegNetX and others (O) some.
GROUPED = (
    _strided("X", 56, 128, 128, 3, groups=32), _strided("X", 56, 256, 256, 3, 2, groups=32),
    _strided("X", 28, 256, 256, 3, groups=32), _strided("X", 28, 512, 512, 3, 2, groups=32),
    _strided("X", 14, 512, 512, 3, groups=32), _strided("X", 14, 1024, 1024, 3, 2, groups=32),
    _strided("X", 7, 1024, 1024, 3, groups=32),
    _strided("X", 56, 128, 128, 3, batch=1, groups=32),
    _strided("X", 14, 512, 512, 3, batch=1, groups=32),
    _strided("O", 28, 192, 192, 3, groups=4), _strided("O", 14, 432, 432, 3, groups=9),
    _strided("O", 27, 96, 256, 5, groups=2), _strided("O", 14, 1024, 1024, 3, groups=16),
)  # fmt: skip
# Layers of a list, and the directions that they are measured in.
LISTS: dict[str, tuple[Sequence[Layer | BatchedLayer], tuple[str, ...]]] = {
    "depthwise": (DEPTHWISE, DIRECTIONS),
    "depthwise_kinds": (KINDS, DIRECTIONS),
    "strided": (STRIDED, DIRECTIONS),
    "grouped": (GROUPED, DIRECTIONS),
    # a file each, so that as many GPUs measure them
    **{f"networks_{way}": (distinct(), (way,)) for way in DIRECTIONS},
}


def main(
    layers: Annotated[str, typer.Argument(help="A list of LISTS.")],
    seconds: Annotated[float, typer.Option(help="Time that all of it may take.")] = 300,
    precisions: Annotated[str, typer.Option(help="With commas.")] = ",".join(PRECISIONS),
    only: Annotated[str, typer.Option(help="Directions, with commas.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Kernels without change, too.")] = False,
    search: Annotated[bool, typer.Option("--cudnn", help="Its fastest algorithm, too.")] = False,
    clock: Annotated[bool, typer.Option("--clock", help="What a clock picks, too.")] = False,
    output: Annotated[Path | None, typer.Option(help="File of rows.")] = None,
    most: Annotated[int, typer.Option(help="Cases at most.")] = 10**6,
    summary: Annotated[bool, typer.Option("--summary", help="Show ratios, and stop.")] = False,
    dry: Annotated[str, typer.Option("--list", help="A datasheet's GPU: its picks.")] = "",
) -> None:
    """Measure what time allows of what is not there yet, or of a pick or kernel that is gone."""
    if layers not in LISTS:
        raise typer.BadParameter(f"no list {layers!r}; expected one of {', '.join(LISTS)}")
    end = time.monotonic() + seconds
    output = output or RESULTS / f"{layers}.jsonl"
    rows = stored(output)
    listed, directions = LISTS[layers]
    asked = [d for d in directions if d in only.split(",")] if only else directions
    cases = [(v, d, p) for v in listed for p in precisions.split(",") for d in asked]
    if dry:
        print("\n".join(shown(case, datasheet(dry)) for case in cases))
        return
    if not summary:
        bench.ready()
        random.Random(0).shuffle(cases)  # so that what time allows is a sample
        kept = {} if again else there(rows, search, clock)
        todo = due(planned(cases, driver.device(0)), kept)
        rows = added(output, timed(todo[:most], end, search, clock))
    print("\n".join(summarized(rows)))


def shown(case: Case, device: Device) -> str:
    """A case and what is picked of it."""
    picks = [p for p, chosen in plans(*case, device).items() if chosen]
    how = (f"{p.kernel} {p.precision} {p.config}, {1e6 * p.predicted:.1f} µs" for p in picks)
    return " ".join((*map(str, case), next(how, "refused")))


def outstanding(words: Sequence[str]) -> tuple[int, float]:
    """Cases of a list without rows of a pick that is not gone, and seconds of one."""
    listed, directions = LISTS[words[0]]
    known = {key(row) for row in apart(latest(stored(RESULTS / f"{words[0]}.jsonl")))[0]}
    every = {(str(v), d, p) for v in listed for d in directions for p in PRECISIONS}
    return len(every - known), EACH


def added(output: Path, made: Iterable[Row]) -> list[Row]:
    """The latest rows of every case of a file, when those that are made are added to it."""
    machine = {"run": datetime.now(UTC).isoformat(timespec="seconds"), **bench.context()}
    with Lines(output) as file:
        for row in made:
            file.append({**machine, **row})
    rows = latest(stored(output))
    rewrite(output, shortened(rows))
    return rows


def timed(
    todo: Sequence[tuple[Case, Mapping[Plan, bool]]],
    end: float,
    search: bool = False,
    clock: bool = False,
) -> Iterator[Row]:
    """Rows of as many cases as can begin before ``end``."""
    for number, (case, found) in enumerate(todo):
        if time.monotonic() > end:
            print(f"no time for {len(todo)} cases in all; call again to go on")
            return
        if number % COMPILED == 0:  # no more than time may allow to measure
            some = todo[number : number + COMPILED]
            others = near([case for case, _ in some], driver.device(0)) if clock else ()
            compile_all([*others, *(plan for _, plans in some for plan in plans)])
        made = tried(case, measured(*case, found, search, clock))
        if made is None:
            return
        yield from made


def due(
    every: Iterable[tuple[Case, dict[Plan, bool], set[str]]], kept: Mapping[Any, Row]
) -> list[tuple[Case, dict[Plan, bool]]]:
    """The cases whose kernel is none of those that were measured, with our plans for them.

    Those whose row is of a pick that is gone come first, since they count nowhere; then those whose
    kernel's text has changed, those without rows, and LONG ones last.
    """
    ranked = []
    for case, found, digests in every:
        row = kept.get((str(case[0]), *case[1:]))
        lost = row is not None and not any(same(row, p) for p, chosen in found.items() if chosen)
        if row is None or lost or row["source"] not in digests:
            turn = 0 if lost else 1 if row and row["source"] else 2
            ranked.append((case[0].problem.macs > LONG, turn, (case, found)))
    return [each for *_, each in sorted(ranked, key=lambda each: each[:2])]


def tried(case: Case, rows: Iterable[Row]) -> list[Row] | None:
    """A case's rows; none of one that fails, which is said, as the others are measured; None where
    the device is lost."""
    try:
        return list(rows)
    except Exception as error:
        print("failed", *case, repr(error)[:300], flush=True)
        return None if lost(error) else []
    finally:
        free()


def planned(cases: Sequence[Case], device: Device) -> list[tuple[Case, dict[Plan, bool], set[str]]]:
    """Every case with our plans for it, and the digests of the sources of those that are picked."""
    with pool(cores()) as processes:
        found = processes.map(_planned, cases, repeat(device), chunksize=8)
        return [(case, *each) for case, each in zip(cases, found, strict=True)]


def _planned(case: Case, device: Device) -> tuple[dict[Plan, bool], set[str]]:
    found = plans(*case, device)
    return found, {digest(plan) for plan, chosen in found.items() if chosen}


def plans(
    layer: Layer | BatchedLayer, direction: str, group: str, device: Device
) -> dict[Plan, bool]:
    """What the planner picks, and the next by prediction, of other vectors or columns; nothing
    where no kernel serves a layer, 16 bits of three channels."""
    request = unnamed(direction, layer.problem, group, device)
    try:
        picked = plan(request)
    except ValueError:
        return {}
    if layer.filters:
        return {picked: True}
    shapes = {_shape(picked): picked}
    for p in candidates(request, near=True).plans:
        shapes.setdefault(_shape(p), p)
    taps = layer.taps if isinstance(layer.taps, int) else 0
    others = [p for p in shapes.values() if p != picked][: OTHERS.get(taps, 0)]
    return {picked: True} | dict.fromkeys(others, False)


def _shape(p: Any) -> tuple[int, int]:
    """Channels and columns of a thread."""
    return p.config.vector, p.config.columns


def measured(
    layer: Layer | BatchedLayer,
    direction: str,
    group: str,
    mine: Mapping[Plan, bool],
    search: bool = False,
    clock: bool = False,
) -> Iterator[Row]:
    """The rows of a case, whose plans ``mine`` are; ``search``: cuDNN's fastest algorithm, too;
    ``clock``: what is timed to be the fastest of the planner's rivals, too."""
    problem = layer.problem
    common = {
        "layer": str(layer), "group": layer.group, "networks": layer.networks,
        "direction": direction, "precision": group,
    }  # fmt: skip
    if not mine:
        yield {**common, "method": "refused"}
        return
    cp = driver.cupy()
    rivals, methods = 0, dict.fromkeys(mine, "winolab")
    if clock:
        found = by_clock(common, unnamed(direction, problem, group))
        rivals, methods = len(found.times), {found.plan: "clock"} | methods
        mine = {**mine, found.plan: mine.get(found.plan, False)}  # the pick first
    arrays = Arrays(direction, problem, group)
    arrays.fill(-1, 1)
    contenders = [*ours(mine)]
    of = dict(zip([c.name for c in contenders], mine.items(), strict=True))
    contenders += frameworks(direction, problem, group)
    if search and problem.macs <= LONG:
        contenders += fastest_of_cudnn(direction, problem, arrays)
    workspace = cp.empty(max(c.workspace or 0 for c in contenders), "uint8")
    calls = {c.name: c.call(arrays, workspace.data.ptr) for c in contenders}
    a, b = arrays.operands["NHWC"]
    size = a.nbytes + b.nbytes + arrays.results["NHWC"].nbytes
    source, target = cp.empty(size // 2, "uint8"), cp.empty(size // 2, "uint8")
    calls["copy"] = lambda: cp.copyto(target, source)
    times = interleave(calls, rounds=ROUNDS, flush=FLUSH)
    errors = {}
    for name in of:
        arrays.poison()
        calls[name]()
        if problem.macs <= LONG:
            errors[name] = relative_rms(direction, problem, arrays)
    common["bytes"] = size
    for name, t in times.items():
        low, mid, high = (round(1e6 * v, 2) for v in (t.low, t.median, t.high))
        method = "tf32" if name.endswith("tf32") else name.split()[0]
        row = {**common, "method": method, "us": mid, "quartiles_us": [low, high]}
        if method == "winolab":
            p, chosen = of[name]
            row |= {"method": methods[p], **({"rivals": rivals} if clock and chosen else {})}
            row |= {k: getattr(p, k) for k in ("rows", "parts", "workers") if hasattr(p, k)}
            row |= {"plan": str(p.config), "products": p.precision,
                    "kernel": p.kernel, "predicted_us": round(1e6 * p.predicted, 2),
                    "workspace": p.workspace, "relative_rms": errors.get(name),
                    "source": digest(p), "chosen": chosen}  # fmt: skip
        elif method != "copy":
            row["layout"] = name.split()[2]
        if method == "cudnn":
            row |= {"algorithm": name.split()[1], "workspace": contenders[-1].workspace}
        yield row


if __name__ == "__main__":
    typer.run(main)
