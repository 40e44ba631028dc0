"""One training run: a network, its data, an optimizer, who convolves; under torchrun as well."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import winolab.torch
from experiments.harness.pytorch import tf32
from experiments.networks.backbones import trained
from experiments.training import processes
from experiments.training.images import ABOUT, Textures
from experiments.training.runs import Run
from experiments.training.tiles import tiled

ALONE = 7  # steps without a sum of gradients, whose median counts
EVERY = 10  # steps between losses that are kept, as the papers have it
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
    "sgdm": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
}


def rank() -> int:
    """This process's number; 0 without torchrun."""
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def together(device: str) -> Iterator[str]:
    """Processes that torchrun started, joined: over NCCL on GPUs, gloo on the CPU. Yields this
    process's device."""
    if world() == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if "cuda" in device else "gloo")
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()


def agreed(answer: bool, device: str) -> bool:
    """The first process's answer, so that none waits for one that has stopped."""
    if world() == 1:
        return answer
    said = torch.tensor([float(answer)], device=device)
    torch.distributed.broadcast(said, 0)
    return bool(said.item())


def built(run: Run) -> nn.Module:
    """The network of a run's seed, on winolab where that is its method."""
    torch.manual_seed(run.seed)
    model = trained(run.network, run.size, run.classes)
    if run.gradients:
        tiled(model, run.algorithm or "direct", run.gradients, run.precision)
    elif run.method == "winolab":
        done = winolab.torch.convert(model, algorithm=run.algorithm, precision=run.precision)
        if stays := [layer.why for layer in done.layers if layer.why]:
            print(f"{len(stays)} of {len(done.layers)} layers are PyTorch's: {stays[0]}")
    return model


def orders(run: Run) -> Iterator[Tensor]:
    """The numbers of each step's images: every epoch a new order, the same for every method."""
    generator = torch.Generator().manual_seed(1000 + run.seed)
    left = torch.empty(0, dtype=torch.long)
    while True:
        while len(left) < run.batch:
            left = torch.cat([left, torch.randperm(run.images, generator=generator)])
        yield left[: run.batch]
        left = left[run.batch :]


# What looks at a step: its number, the network, and the loss scale that it begins with.
Watch = Callable[[int, nn.Module, float], AbstractContextManager[None]]


def train(run: Run, device: str = "cpu", watch: Watch | None = None) -> dict[str, Any]:
    """Train, and tell: the loss every EVERY steps, median seconds of a step, the data's apart, the
    most memory of the device that steps behind the first take (``memory_mb``; ``peak_mb`` of older
    rows holds cuDNN's search as well, if it was made in that run), and the share of images that are
    told right. A loss that is no number ends it. ``watch`` is entered around every step."""
    on_gpu = "cuda" in device
    model = built(run).to(device).train()
    whole: nn.Module = DistributedDataParallel(model) if world() > 1 else model
    optimizer = OPTIMIZERS[run.optimizer](model.parameters(), run.rate)
    kind = device.split(":")[0]
    scaler = torch.amp.GradScaler(kind, enabled=bool(run.amp))
    data = Textures(run.size, run.classes, noise=run.noise)
    losses: list[float] = []
    times: list[float] = []
    diverged = None

    def step(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
        """The batch's loss, before the step."""
        found = []
        with tf32(run.method == "tf32"):
            optimizer.zero_grad()
            for x, labels in parts:
                with torch.autocast(kind, torch.float16, enabled=bool(run.amp)):
                    loss = nn.functional.cross_entropy(whole(x).float(), labels)
                scaler.scale(run.scale * loss / len(parts)).backward()
                found.append(loss.detach())
            if run.scale != 1:
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.grad /= run.scale
            scaler.step(optimizer)
            scaler.update()
        return torch.stack(found).mean()

    parts: list[tuple[Tensor, Tensor]] = []
    for at, numbers in zip(range(run.steps), orders(run), strict=False):
        mine = numbers.chunk(world())[rank()]
        parts = [data.batch(part, device, run.images) for part in mine.chunk(run.parts)]
        if on_gpu and not at and run.method == "winolab":
            with torch.autocast(kind, torch.float16, enabled=bool(run.amp)):
                winolab.torch.warmup(model, parts[0][0], progress=False)
        started = _clock(on_gpu)
        with watch(at, model, scaler.get_scale()) if watch else nullcontext():
            loss = step(parts)
        times.append(_clock(on_gpu) - started)
        if on_gpu and not at:  # the first step holds what cuDNN's search for the fastest takes
            torch.cuda.reset_peak_memory_stats()
        if at % EVERY == 0 or at == run.steps - 1:
            losses.append(_mean(loss))
            if not losses[-1] < float("inf"):
                diverged = at
                break
    warm = times[min(5, len(times) // 2) :]
    peak = torch.cuda.max_memory_allocated() if on_gpu and len(times) > 1 else None
    found: dict[str, Any] = {
        **asdict(run),
        "data": ABOUT,
        "step_ms": round(1e3 * statistics.median(warm), 4),
        "memory_mb": peak and round(peak / 1e6, 1),
        "losses": [round(v, 6) if v == v else None for v in losses],
        "every": EVERY,
        "diverged": diverged,
    }
    if isinstance(whole, DistributedDataParallel) and on_gpu and diverged is None:
        found |= _summed(whole, lambda: step(parts))
    if run.amp:
        found["loss_scale"] = scaler.get_scale()
    if diverged is None and run.tested:
        for split, count in (("train", min(run.tested, run.images)), ("test", run.tested)):
            found[f"{split}_accuracy"] = accuracy(model, run, split, count, device)
    return found


def _summed(whole: DistributedDataParallel, step: Callable[[], Any]) -> dict[str, Any]:
    """Milliseconds of a step that does not sum up gradients, and the kernels of one that does."""
    with whole.no_sync():
        alone = []
        for _ in range(ALONE):
            started = _clock(True)
            step()
            alone.append(_clock(True) - started)
    found = processes.profile(step)
    return {"alone_ms": round(1e3 * statistics.median(alone), 4), **found}


def accuracy(model: nn.Module, run: Run, split: str, count: int, device: str) -> float:
    """The share of the first images of a split that are told right."""
    data = Textures(run.size, run.classes, split, run.noise)
    of = run.images if split == "train" else count
    right = 0
    model.eval()
    with torch.no_grad(), tf32(run.method == "tf32"):
        for numbers in torch.arange(count).split(run.batch):
            x, labels = data.batch(numbers, device, of)
            right += int((model(x).argmax(1) == labels).sum())
    model.train()
    return right / count


def _mean(loss: Tensor) -> float:
    """The loss of all processes' images."""
    if world() > 1:
        torch.distributed.all_reduce(loss)
        loss = loss / world()
    return loss.item()


def _clock(on_gpu: bool) -> float:
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter()
