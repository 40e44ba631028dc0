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
    TF32. Nothing for problems that are padded more behind than in front. Raises MachineError
    without a torch that sees the GPU."""
    if problem.ndim > 3 or any(low < high for low, high in problem.padding):
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
    run = convolution(direction, problem)
    views: dict[int, list] = {}

    def timed(arrays: Arrays, workspace: int) -> Any:
        if id(arrays) not in views:
            views[id(arrays)] = [_tensor(torch, a, order, group) for a in arrays.operands[order]]
        with _mode(torch, tf32):
            return run(*views[id(arrays)])

    return timed


def convolution(direction: str, problem: Problem) -> Callable[[Any, Any], Any]:
    """PyTorch's, of channels-first tensors. What is padded in front more than behind is padded as
    much on both sides and its result cut; of filter gradients, for which that would need zeros
    behind dy, x is copied behind zeros."""
    torch = importlib.import_module("torch")
    p, backward = problem, torch.ops.aten.convolution_backward
    stride = list(p.stride)
    before, behind = ([sides[i] for sides in p.padding] for i in range(2))
    how = [list(p.dilation), False, [0] * p.ndim, p.groups]
    more = [low - high for low, high in p.padding]
    zeros = [n for each in reversed(more) for n in (each, 0)]
    x_shape = p.batch, p.in_channels, *(n + m for n, m in zip(p.input, more, strict=True))
    w_shape = p.out_channels, p.in_channels // p.groups, *p.filter
    inner = ..., *(slice(n) for n in p.output)
    outer = ..., *(slice(m, None) for m in more)

    def run(a: Any, b: Any) -> Any:
        if direction == "forward":
            y = torch.ops.aten.convolution(a, b, None, stride, before, *how)
            return y[inner] if any(more) else y
        like = torch.empty(1, device=a.device, dtype=a.dtype)
        if direction == "backward_data":
            mask = [True, False, False]
            dx = backward(a, like.expand(x_shape), b, None, stride, behind, *how, mask)[0]
            return dx[outer] if any(more) else dx
        x = torch.nn.functional.pad(a, zeros) if any(more) else a
        mask = [False, True, False]
        return backward(b, x, like.expand(w_shape), None, stride, behind, *how, mask)[1]

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


def relative_rms(direction: str, problem: Problem, arrays: Arrays) -> float:
    """The result's error against PyTorch's in FP64 of the same data."""
    import torch  # pyright: ignore[reportMissingImports]

    def wide(array: Any) -> Any:
        return torch.from_dlpack(arrays.values(array).astype("float64")).movedim(-1, 1)

    a, b, got = map(wide, (*arrays.operands["NHWC"], arrays.results["NHWC"]))
    due = convolution(direction, problem)(a, b)
    return float(((got - due) ** 2).mean().sqrt() / (due**2).mean().sqrt())
