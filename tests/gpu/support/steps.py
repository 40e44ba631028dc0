"""Steps of training by kernels on the CPU: launches that say whose they are, and gradients beside
PyTorch's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import torch

import winolab.torch
from tests.gpu.support.pretended import HostLaunch, host_encoder
from tests.torch.network import tensors
from winolab.gpu import driver

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 4)
HOW = {"padding": 1, "precision": "fp32_ffma", "algorithm": "gamma:4:2:3"}
X, W = (2, 4, 6, 5), (8, 4, 3, 3)
Pair = tuple[Any, Any]


class Launch(HostLaunch):
    """Streams of launches are written down, and how many come from the native module."""

    streams: ClassVar[list[int]] = []
    current, native, status = 7, 0, 0
    one = Lock()

    def on(self, stream: int) -> None:
        self.stream = stream

    def start(self) -> int:
        with Launch.one:  # kernels on the CPU share their threads
            Launch.streams.append(self.stream)
            return super().start()

    def words(self) -> tuple[int, list[int], int]:
        self.held = (ctypes.c_uint64 * 5)(1, 2, 3, 4, self.stream)
        self.started = FUNCTION(self.from_native)
        place = ctypes.addressof(self.held)
        return driver.address_of(self.started), [place + 8 * i for i in range(4)], place + 32

    def from_native(self, *words: int) -> int:
        assert words == (1, 2, 3, 4)
        Launch.native += 1
        self.stream = self.held[4]
        return Launch.status or self.start()

    def check(self, status: int) -> None:
        raise RuntimeError(f"the driver says {status}")


class Maps:
    """Tensor maps as kernels on the CPU read them, which are told other addresses."""

    def __init__(self) -> None:
        self.at: dict[int, Any] = {}
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)(self.told)

    def encoder(self, map: Any, to: int) -> Any:
        self.at[to] = host_encoder(map, to)
        return self.at[to]

    def told(self, place: int, address: int) -> int:
        self.at[place](address)
        return 0


def drawn(last: bool = False) -> Pair:
    x, w = (v.requires_grad_() for v in tensors(X, W, dtype=torch.float32))
    if not last:
        return x, w
    return tuple(v.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
                 for v in (x, w))  # fmt: skip


def gradients(convolve: Callable[[Any, Any], Any], pair: Pair, upstream: Any = None) -> list[Any]:
    y = convolve(*pair)
    wanted = [v for v in pair if v.requires_grad]
    upstream = torch.ones_like(y) if upstream is None else upstream
    return [y.detach(), *torch.autograd.grad(y, wanted, upstream)]


OURS = partial(winolab.torch.conv2d, **HOW)
THEIRS = partial(torch.nn.functional.conv2d, padding=1)


def kept() -> Pair:
    """Operands whose calls are kept by now."""
    pair = drawn()
    for _ in range(4):
        agree(pair)
    return pair


def check_captured(model: Any, x: Any) -> None:
    """That a CUDA graph of the model computes from what its input holds when it is replayed."""
    with torch.no_grad():
        before = model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        x.mul_(2)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, model(x))
        assert not torch.equal(y, before)


def agree(pair: Pair, upstream: Any = None) -> list[Any]:
    """Result and gradients, which are PyTorch's but for roundings."""
    got = gradients(OURS, pair, upstream)
    for mine, theirs in zip(got, gradients(THEIRS, pair, upstream), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    return got
