"""Whole networks with and without winolab: ``python -m experiments.networks.end_to_end``.

A case is a network, a batch, a numeric format, a memory order and whether torch.compile takes it;
its contenders are PyTorch and the same network converted by ``winolab.torch.convert``, with the
same random weights, in turn. Formats: fp32 (PyTorch beside it with IEEE products and with TF32),
and fp16 and bf16 under autocast. A row has quartiles in milliseconds of a forward pass in
evaluation or of a training step (forward, loss, gradients, SGD), the most memory that network,
images and step took (``memory_mb``; ``peak_mb`` of older rows has the other contenders', too), how
many of its convolutions are winolab's, how many calls came before the first that is timed
(``warm``), seconds that the case's contenders took so far (``took_s``; ``spent_s``: by parts), and
by how much outputs and gradients deviate from FP64, the largest difference over the largest value,
of two images or, of a video, of a part: in evaluation by the kernels that are timed.

Rows are added to experiments/results/end_to_end.jsonl as they are measured, by several processes at
a time, too; what is there is measured again only where its kernels have changed (``aims.older``) or
``--again`` says so, and counts no more.
``--clock`` measures instead the network whose plans a clock picked (``winolab.torch.warmup(...,
measure=True)``): a row of method ``clock`` with the others' milliseconds of the same sitting.
``--tiny`` has small images, on the CPU where there is no GPU: it shows that the cases run, and its
rows are marked. ``--seconds`` ends a sitting, ``--summary`` shows ratios.
"""

from __future__ import annotations

import copy
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

import winolab.torch
from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.harness.pytorch import tf32
from experiments.measure.networks import UNet, VideoDecoder
from experiments.networks import others
from experiments.networks.aims import ORDERS, STEPS, older
from experiments.networks.backbones import calibrate, resnet, vgg
from experiments.networks.deviations import Kept, deviations, numbers
from winolab.bench.timing import Laps
from winolab.cli.environment import provenance
from winolab.gpu.runtime.cuda_graphs import REPEATS
from winolab.lines import add

RESULTS = ROOT / "experiments" / "results" / "end_to_end.jsonl"
# A call with the same addresses is a CUDA graph once it came REPEATS times: before that every
# step would be measured as a first one is.
ROUNDS, WARM = 15, REPEATS + 4
# In a step as long as LONG milliseconds the host's time does not count, graph or not: fewer calls.
LONG, FEW = 200.0, 5
GUESS = 60.0  # seconds of a case, where no row tells
EXACT = Kept()
Row = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """How it is built, its input without batch, small in ``tiny``, its batches, and the corner of
    an input of which FP64 is computed, where all of it would take minutes."""

    build: Callable[[], nn.Module]
    input: tuple[int, ...]
    tiny: tuple[int, ...]
    batches: tuple[int, ...] = (1, 32)
    corner: tuple[int, ...] | None = None


NETWORKS = {
    "resnet18": Network(partial(resnet, 18), (3, 224, 224), (3, 96, 96)),
    "resnet50": Network(partial(resnet, 50), (3, 224, 224), (3, 96, 96)),
    "vgg16": Network(partial(vgg, 16), (3, 224, 224), (3, 224, 224)),
    "inception_v3": Network(others.inception_v3, (3, 299, 299), (3, 107, 107)),
    "densenet121": Network(others.densenet121, (3, 224, 224), (3, 64, 64)),
    "convnext_tiny": Network(others.convnext_tiny, (3, 224, 224), (3, 64, 64)),
    "efficientnet_b0": Network(others.efficientnet_b0, (3, 224, 224), (3, 64, 64)),
    "unet2d": Network(
        partial(UNet, 2, 3, (64, 128, 256, 512, 1024), 2), (3, 512, 512), (3, 32, 32), (1, 8)
    ),
    "unet3d": Network(
        partial(UNet, 3, 1, (32, 64, 128, 256), 3), (1, 128, 128, 128), (1, 16, 16, 16), (1, 2)
    ),
    # Eight frames of 240 × 416. Of the layers' list, 20 of 480 × 832, PyTorch's step in FP32 takes
    # seven seconds, and minutes until its benchmark mode has chosen.
    "video_decoder": Network(
        VideoDecoder, (16, 2, 30, 52), (16, 1, 4, 4), (1,), corner=(16, 1, 8, 8)
    ),
}
FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
MODES = "eager", "compiled"


@dataclass(frozen=True)
class Case:
    """What is measured; a row begins with its fields."""

    network: str
    batch: int
    format: str
    order: str
    mode: str
    step: str
    tiny: bool = False


def cases(
    networks: list[str], formats: list[str], orders: list[str], modes: list[str], tiny: bool
) -> Iterator[Case]:
    """Every case: each network's largest batch first, and of those what tells most, BF16 last."""
    found = [
        Case(name, batch, kind, order, mode, step, tiny)
        for name, kind, order, mode, step in product(networks, formats, orders, modes, STEPS)
        for batch in ((2,) if tiny else reversed(NETWORKS[name].batches))
    ]
    yield from sorted(
        found, key=lambda c: (c.batch < NETWORKS[c.network].batches[-1], c.format == "bf16")
    )


OURS = ("winolab", "clock")


def contenders(case: Case, clock: bool = False) -> list[str]:
    """Who computes it: PyTorch's FP32 has two kinds of products on a GPU."""
    two = case.format == "fp32" and torch.cuda.is_available()
    return [OURS[clock], "torch", *(["tf32"] if two else [])]


class Step:
    """A contender's forward pass or training step, of one model and one input."""

    def __init__(self, case: Case, who: str, model: nn.Module, x: Tensor) -> None:
        self.case, self.who, self.x = case, who, x
        self.model = copy.deepcopy(model).train(case.step == "training")
        self.converted = ""
        if who in OURS:
            done = winolab.torch.convert(self.model)
            count = sum(layer.converted for layer in done.layers)
            self.converted = f"{count} of {len(done.layers)}"
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        backend = "inductor" if x.is_cuda else "aot_eager"
        compiled = case.mode == "compiled"
        self.call: Any = torch.compile(self.model, backend=backend) if compiled else self.model
        self.scaler = torch.amp.GradScaler(enabled=case.format == "fp16" and x.is_cuda)

    def products(self, benchmark: bool = True) -> AbstractContextManager[Any]:
        """How PyTorch multiplies FP32 numbers, which nothing leaves changed."""
        return tf32(self.who == "tf32", benchmark) if self.x.is_cuda else nullcontext()

    def autocast(self) -> torch.autocast:
        """Autocast, where the format is narrow."""
        kind = FORMATS[self.case.format]
        return torch.autocast(self.x.device.type, dtype=kind, enabled=kind != torch.float32)

    def compile_kernels(self) -> None:
        """Compile winolab's for a GPU on all cores; a step would compile one by one, and so would
        one that torch.compile took, which calls the same, channels last without gradients."""
        if self.who not in OURS or not self.x.is_cuda:
            return
        x = self.x
        if self.case.mode == "compiled" and self.case.step == "forward":
            x = x.movedim(1, -1).contiguous().movedim(-1, 1)
        with self.autocast():
            winolab.torch.warmup(self.model, x, measure=self.who == "clock")

    def loss(self) -> tuple[Tensor, Tensor]:
        """The outputs, and the mean of their squares, under autocast where the format is narrow."""
        with self.autocast():
            y = self.call(self.x)
        return y, y.float().square().mean()

    def __call__(self) -> None:
        with self.products():
            if self.case.step == "forward":
                with torch.no_grad():
                    self.loss()
                return
            self.optimizer.zero_grad()
            self.scaler.scale(self.loss()[1]).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()


def rows(case: Case, device: str, clock: bool = False) -> Iterator[Row]:
    """A row a contender; ``clock``: of ours alone, as a clock picked it, with others' times."""
    torch.compiler.reset()  # else what was compiled before counts, and PyTorch compiles no more
    lap = Laps()
    model, x, memory = built(case, device)
    lap("built")
    names, started = contenders(case, clock), time.monotonic()
    steps: dict[str, Step] = {}
    warm: dict[str, int] = {}
    memory_mb: dict[str, float | None] = {}
    for who in names:
        beside = torch.cuda.memory_allocated() if x.is_cuda else 0
        steps[who] = step = Step(case, who, model, x)
        step.compile_kernels()
        lap("kernels")
        warm[who] = warm_up(step)
        memory_mb[who] = _most(step, beside)
        lap(f"warm {who}")
    times = _interleaved(steps, ROUNDS if min(warm.values()) == WARM else FEW)
    lap("timed")
    common = {**asdict(case), **provenance(), **machine(device)}
    two = x[:2]
    corner = None if case.tiny else NETWORKS[case.network].corner
    if corner:
        two = two[(slice(2), *map(slice, corner))]
    two = two.contiguous(**memory)
    # In evaluation an image does not see others: two of all have the kernels that were timed.
    images = two if corner or case.step == "training" else x
    plain = Case(**{**asdict(case), "mode": "eager"})
    wide = Case(**{**asdict(plain), "format": "fp32"})
    of = (case.network, case.batch, case.order, case.step, case.tiny)
    exact = EXACT.get(
        of, model, two, lambda: numbers(Step(wide, "torch", model.double(), two.double()))
    )
    lap("fp64")
    beside = names[1:] if clock else []
    others = {f"{who}_ms": round(statistics.median(times[who]), 4) for who in beside}
    for who in names[:1] if clock else names:
        step = Step(plain, who, model.float(), images)
        if images is two:
            step.compile_kernels()
        found = deviations(numbers(step), exact)
        lap(f"deviations {who}")
        low, mid, high = statistics.quantiles(times[who], n=4)
        yield {
            **common, "method": who, "ms": round(mid, 4),
            "quartiles_ms": [round(low, 4), round(high, 4)], "warm": warm[who],
            "memory_mb": memory_mb[who], "converted": steps[who].converted, **found, **others,
            "took_s": round(time.monotonic() - started, 2), "spent_s": dict(lap.seconds),
        }  # fmt: skip


def built(case: Case, device: str) -> tuple[nn.Module, Tensor, dict[str, Any]]:
    """The case's network with random weights, its images, and the order in which both lie in
    memory, as PyTorch's functions take it."""
    network = NETWORKS[case.network]
    torch.manual_seed(0)
    model = network.build().to(device)
    shape = network.tiny if case.tiny else network.input
    memory: dict[str, Any] = {}
    if case.order == "last":
        memory["memory_format"] = [torch.channels_last, torch.channels_last_3d][len(shape) - 3]
        model = model.to(**memory)
    x = (torch.rand((case.batch, *shape), device=device) - 0.5).contiguous(**memory)
    calibrate(model, x[:2])
    return model, x, memory


@cache
def machine(device: str) -> Row:
    """The GPU, where there is one; the processor is in provenance."""
    if device == "cpu":
        return {"device": "CPU", "torch": torch.__version__}
    from winolab.cli import bench

    return {**bench.context(), "torch": torch.__version__}


def warm_up(step: Step) -> int:
    """Call it until its next calls are as all that follow; how many calls that took."""
    if not step.x.is_cuda:
        step()
        return 1
    for calls in range(1, WARM):
        if milliseconds(step, True) > LONG and calls >= FEW:
            return calls
    step()
    return WARM


def _most(step: Step, beside: int) -> float | None:
    """MB of the device that network, images and a warm step take, but for so many bytes that others
    have; None on the CPU."""
    if not step.x.is_cuda:
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_allocated() - beside + step.x.nbytes
    return round(most / 1e6, 1)


def _interleaved(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every step, in turn."""
    times: dict[str, list[float]] = {who: [] for who in steps}
    for _ in range(rounds if next(iter(steps.values())).x.is_cuda else 2):
        for who, step in steps.items():
            times[who].append(milliseconds(step, step.x.is_cuda))
    return times


def milliseconds(call: Callable[[], Any], on_gpu: bool) -> float:
    """One call's time, from an idle device to one that is done."""
    if on_gpu:
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    if on_gpu:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - started)


def main(
    networks: Annotated[str, typer.Option(help="With commas.")] = ",".join(NETWORKS),
    formats: Annotated[str, typer.Option(help="With commas.")] = ",".join(FORMATS),
    orders: Annotated[str, typer.Option(help="first, last.")] = ",".join(ORDERS),
    modes: Annotated[str, typer.Option(help="eager, compiled.")] = ",".join(MODES),
    tiny: Annotated[bool, typer.Option("--tiny", help="Small images, two of them.")] = False,
    seconds: Annotated[float, typer.Option(help="No case begins later.")] = float("inf"),
    again: Annotated[bool, typer.Option("--again", help="What is there, too.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Show ratios, and stop.")] = False,
    clock: Annotated[bool, typer.Option("--clock", help="Plans that a clock picks.")] = False,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Measure what the file lacks."""
    if summary:
        print("\n".join(summarized(stored(output))))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not tiny:
        raise SystemExit("whole networks are measured on a GPU: add --tiny to run small ones here")
    given = [text.split(",") for text in (networks, formats, orders, modes)]
    for asked, known in zip(given, (NETWORKS, FORMATS, ORDERS, MODES), strict=True):
        if unknown := set(asked) - set(known):
            raise SystemExit(f"{', '.join(sorted(unknown))}; expected of {', '.join(known)}")
    started = time.monotonic()
    done = _done(row for row in stored(output) if (row["method"] == "clock") == clock)
    for case in cases(given[0], given[1], given[2], given[3], tiny):
        if _key(asdict(case)) in done and not again:
            continue
        if time.monotonic() - started > seconds:
            print("time is over; call again to go on")
            break
        found = list(rows(case, device, clock))
        add(output, found)  # all of them or none, for the next sitting
        for row in found:
            shown = (*asdict(case), "method", "ms", "logits")
            print(json.dumps({name: row[name] for name in shown}), flush=True)


def outstanding(words: Sequence[str]) -> tuple[int, float]:
    """Cases of a command without rows, and the median of the seconds that others took."""
    said = dict(zip(words[::2], words[1::2], strict=True))
    networks = said.get("--networks", ",".join(NETWORKS)).split(",")
    modes = said.get("--modes", ",".join(MODES)).split(",")
    kept = stored(RESULTS)
    took = [row["took_s"] for row in kept if "took_s" in row and row["mode"] in modes]
    done = _done(row for row in kept if row["method"] != "clock")
    every = cases(networks, [*FORMATS], [*ORDERS], modes, False)
    count = sum(_key(asdict(case)) not in done for case in every)
    return count, statistics.median(took) if took else GUESS


def summarized(rows: Sequence[Row]) -> Iterator[str]:
    """A line a step, format, order, mode and peer: how many times as fast, over networks and
    batches: the geometric mean, the least, and of what."""
    times: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        times.setdefault((*_key(row), row["device"]), {})[row["method"]] = row["ms"]
    ratios: dict[tuple[str, ...], dict[str, float]] = {}
    for (network, batch, kind, order, mode, step, *_, device), of in times.items():
        for peer in set(of) - {*OURS}:
            where = (step, kind, f"channels {order}", mode, f"over {peer}", device)
            ratios.setdefault(where, {})[f"{network} of {batch}"] = of[peer] / of["winolab"]
    for where, found in sorted(ratios.items()):
        least = min(found, key=found.__getitem__)
        mean = statistics.geometric_mean(found.values())
        said = f"{mean:.2f} of {len(found)}, least {found[least]:.2f} ({least})"
        yield f"{', '.join(where)}: {said}"


def _done(rows: Iterable[Row]) -> set[tuple[Any, ...]]:
    return {_key(row) for row in rows if not older(row)}


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in Case.__dataclass_fields__)


if __name__ == "__main__":
    typer.run(main)
