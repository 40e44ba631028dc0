"""PyTorch's convolutions as contenders."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from winolab.algorithm import Problem
from winolab.bench.contenders import ORDERS, Arrays, Contender
from winolab.gpu.machine import MachineError, absent


def frameworks(direction: str, problem: Problem, group: str) -> Iterator[Contender]:
    """PyTorch's convolution in benchmark mode, channels last and first; in FP32 without and with
    TF32. Nothing for problems that it pads differently. Raises MachineError without a torch that
    sees the GPU."""
    even = all(low == high for low, high in problem.padding)
    if problem.ndim > 3 or not even:
        return
    _usable()
    for tf32 in (False, True) if group == "fp32" else (False,):
        for order in ORDERS:
            products, kernel = "tf32" if tf32 else group, f"conv{problem.ndim}d"
            labels = {"method": "torch", "kernel": kernel, "products": products}
            name = f"torch {kernel} {order} {products}"
            run = _framework(direction, problem, group, order, tf32)
            yield Contender(name, order, None, labels, run)


def version() -> str:
    """Torch's. Raises ImportError without it."""
    return importlib.import_module("torch").__version__


def _usable() -> None:
    if lacking := absent("torch"):
        raise lacking
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise MachineError(f"torch cannot be imported: install it anew ({error})") from error
    if not torch.cuda.is_available():
        raise MachineError(
            f"torch {torch.__version__} sees no GPU: install one built for the driver's CUDA"
        )


def _framework(direction, problem, group, order, tf32) -> Callable[[Arrays, int], Any]:
    torch = importlib.import_module("torch")
    options = [list(v) for v in (problem.stride, [low for low, _ in problem.padding])]
    options += [list(problem.dilation), False, [0] * problem.ndim, problem.groups]
    backward = torch.ops.aten.convolution_backward
    views: dict[int, list] = {}

    def run(arrays: Arrays, workspace: int) -> Any:
        if id(arrays) not in views:
            views[id(arrays)] = [_tensor(torch, a, order, group) for a in arrays.operands[order]]
        a, b = views[id(arrays)]
        with _mode(torch, tf32):
            if direction == "forward":
                return torch.ops.aten.convolution(a, b, None, *options)
            like = torch.empty(1, device=a.device, dtype=a.dtype)
            if direction == "backward_data":
                x = like.expand(problem.batch, problem.in_channels, *problem.input)
                mask = [True, False, False]
                return backward(a, x, b, None, *options, mask)[0]
            taps = (problem.out_channels, problem.in_channels // problem.groups, *problem.filter)
            return backward(b, a, like.expand(taps), None, *options, [False, True, False])[1]

    return run


@contextmanager
def _mode(torch: Any, tf32: bool) -> Iterator[None]:
    backend = torch.backends.cudnn
    before = backend.allow_tf32, backend.benchmark
    backend.allow_tf32, backend.benchmark = tf32, True
    try:
        yield
    finally:
        backend.allow_tf32, backend.benchmark = before


def _tensor(torch: Any, array: Any, order: str, group: str) -> Any:
    """The array as torch's NCHW tensor; channels-last memory for NHWC."""
    tensor = torch.from_dlpack(array)
    if group == "bf16":
        tensor = tensor.view(torch.bfloat16)
    return tensor.movedim(-1, 1) if order == "NHWC" else tensor
