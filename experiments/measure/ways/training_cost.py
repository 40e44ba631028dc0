"""Host time of training without a GPU: ``python -m experiments.measure.ways.training_cost``.

Convolutions of a small ResNet-18 and their gradients, on CPU tensors that winolab.torch takes for a
GPU's: plans are an H200's, and the driver does nothing, so that the host's part beside it is what
is left. Each step has new tensors, and those of ALIVE steps are kept, so that addresses change from
call to call. A line has microseconds of a layer, the mean over layers of the least of ROUNDS steps,
and how many functions of Python a layer calls, which no other process changes; first of calls by
Python alone, then with the native module (winolab.torch.native).
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
import typer
from torch import Tensor

import winolab.torch
from winolab import calls
from winolab.device import datasheet
from winolab.gpu import driver
from winolab.gpu.runtime import arrays, cuda_graphs, loader
from winolab.torch import modules, native, operators, plain

ALIVE, WARM, ROUNDS, IMAGES = 12, 6, 30, 4
# Input and output channels, taps, stride, pixels: ResNet-18's with a quarter of the channels.
STAGES = (
    [(16, 16, 3, 1, 16)] * 4,
    [(16, 32, 3, 2, 16), (16, 32, 1, 2, 16), *[(32, 32, 3, 1, 8)] * 3],
    [(32, 64, 3, 2, 8), (32, 64, 1, 2, 8), *[(64, 64, 3, 1, 4)] * 3],
    [(64, 64, 3, 2, 4), (64, 64, 1, 2, 4), *[(64, 64, 3, 1, 2)] * 3],
)
LAYERS = [(3, 16, 7, 2, 64), *(layer for stage in STAGES for layer in stage)]
FORMATS = {"fp32": torch.float32, "fp16": torch.float16}
ORDERS = {"first": torch.contiguous_format, "last": torch.channels_last}


class Driver:
    """Its functions do nothing and succeed, at the price of a call by ctypes."""

    def __getattr__(self, name: str) -> Any:
        does_nothing = ctypes.CDLL(None).fegetround  # 0: to nearest
        setattr(self, name, does_nothing)
        return does_nothing


@contextmanager
def pretended(past_python: bool = False) -> Iterator[None]:
    """Lets tensors of the CPU take a GPU's way, and does not wait for kernels."""
    nothing, describe = Driver(), arrays.TORCH.describe
    by = plain.NATIVE.of(list(plain.PLAIN["cpu"]))

    def load(units: Sequence[loader.Asked], index: int) -> Any:
        return {
            name: driver.Kernel(name, 1, size, None)
            for unit in units
            for name, size in unit.shared.items()
        }

    with ExitStack() as stack:
        for where, name, value in (
            (driver, "driver", lambda: nothing),
            (cuda_graphs, "driver", lambda: nothing),
            (driver, "device", lambda index: datasheet("h200")),
            (driver, "make_current", lambda index: None),
            (loader, "load_units", load),
            (arrays, "_device", lambda index: torch.device("cpu")),
            (arrays, "_current_device", lambda: lambda: 0),
            (arrays, "_stream_of", lambda: lambda index: 7),
            (arrays.Torch, "array", lambda library, name, value: value),
            (arrays.Torch, "describe", lambda library, v: describe(v)._replace(index=0)),
            (operators, "_on_cpu", operators._on_cuda),
            (calls, "kept", {}),
            (plain, "NATIVE", by),
            (modules, "NATIVE", by),
        ):
            stack.enter_context(patch.object(where, name, value))
        stack.callback(arrays._maker.cache_clear)
        arrays._maker.cache_clear()
        if past_python:
            by.use(native.loaded(native.compiled()))
        yield


class Network:
    """The layers, each with an input of its own."""

    def __init__(self, kind: str, order: str) -> None:
        self.kind, self.order = FORMATS[kind], ORDERS[order]
        layers: list[Any] = [
            winolab.torch.Conv2d(a, b, taps, stride, taps // 2, bias=False)
            for a, b, taps, stride, _ in LAYERS
        ]
        self.layers = [layer.to(memory_format=self.order) for layer in layers]
        self.alive: deque[Any] = deque(maxlen=ALIVE)

    def step(self) -> tuple[list[float], list[float]]:
        """Microseconds of every layer, forward and of its gradients."""
        forward, backward = [], []
        clock, results = time.perf_counter, []
        with torch.autocast("cpu", torch.float16, enabled=self.kind == torch.float16):
            for layer, (a, *_, size) in zip(self.layers, LAYERS, strict=True):
                x = self.empty(IMAGES, a, size, size).requires_grad_(a > 3)
                begin = clock()
                y = layer(x)
                forward.append(1e6 * (clock() - begin))
                results.append((x, y))
        for x, y in reversed(results):
            upstream = torch.empty_like(y)
            begin = clock()
            y.backward(upstream)
            backward.append(1e6 * (clock() - begin))
            self.alive.append((x.grad, upstream))
        self.alive.append((results, [layer.weight.grad for layer in self.layers]))
        for layer in self.layers:
            layer.weight.grad = None
        return forward, backward

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.kind, memory_format=self.order)


def functions(network: Network) -> int:
    """How many functions of Python a step calls."""
    count = 0

    def note(frame: Any, event: str, what: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        network.step()
    finally:
        sys.setprofile(None)
    return count


def cost(kind: str, order: str, rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Microseconds of a layer forward, and of its gradients, and Python's calls of both."""
    network = Network(kind, order)
    for _ in range(WARM):
        network.step()
    steps = [network.step() for _ in range(rounds)]
    least = [[min(layer) for layer in zip(*part, strict=True)] for part in zip(*steps, strict=True)]
    forward, backward = map(statistics.mean, least)
    return forward, backward, functions(network) / len(LAYERS)


def main() -> None:
    """Print what training costs the host."""
    torch.set_num_threads(1)
    for past_python, kind, order in product((False, True), FORMATS, ORDERS):
        with pretended(past_python):
            forward, backward, count = cost(kind, order)
        print(
            f"{'past Python' if past_python else 'Python':11}  {kind} channels {order:5}  forward "
            f"{forward:5.1f} µs, gradients {backward:5.1f} µs, {count:.0f} calls of functions"
        )


if __name__ == "__main__":
    typer.run(main)
