"""A network's kernels, compiled on all cores before the network is called, or behind its back."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from winolab import calls
from winolab.device import Device
from winolab.gpu import warm
from winolab.gpu.runtime import smaller
from winolab.gpu.runtime.cache import plans
from winolab.gpu.runtime.cache.source import Source
from winolab.torch.asked import Asked
from winolab.torch.convert import check_module, gpu_of, stated_gpu
from winolab.torch.fake.calls import without_numbers
from winolab.torch.fake.state import State
from winolab.torch.kept import KeptFilters
from winolab.torch.operators import BACKGROUND, OBSERVED, OPERATORS, asked_by, shape_of, units
from winolab.torch.plain import NATIVE

log = logging.getLogger("winolab.torch")


class Recorded(TorchDispatchMode):
    """The calls of winolab's operators: direction, operands, what follows them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Tensor, Tensor, tuple[Any, ...]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for direction, operator in OPERATORS.items():
            if func is operator:
                a, b, *rest = args
                with unset_fake_temporarily():  # shapes alone are kept
                    self.calls.append((direction, shape_of(a), shape_of(b), tuple(rest)))
        return func(*args, **(kwargs or {}))


def warmup(
    model: nn.Module,
    inputs: Any,
    *,
    device: str | Device | None = None,
    workers: int | None = None,
    progress: bool = True,
    wait: bool = True,
    measure: bool = False,
) -> warm.Warmed:
    """Compile every kernel that a call of the model with these inputs runs, on all cores.

    ``inputs``, a tensor or a tuple of them, count by their shapes, dtypes and memory order: nothing
    is computed, but for a model in evaluation on its own GPU, which is called once with PyTorch's
    convolutions in place of what is not compiled yet: tensors without numbers take PyTorch seconds
    to import. In training the gradients' kernels are compiled, too; in evaluation those of
    filters that are kept. Under ``torch.autocast`` it is what autocast asks for. ``device`` is the
    GPU that is meant, a name of ``winolab devices`` or a Device, which need not be there; None is
    where the model is. ``workers`` are threads, by default one a core; a bar on standard error says
    how far it is, where that is a terminal and unless ``progress`` is False.

    Kernels are kept in the folder WINOLAB_CACHE, so that the next process finds them. The result
    names them and says how long each took. For a model on a GPU the module by which calls go past
    Python is compiled, too (winolab.torch.native), which takes one core 20 s; without ``wait`` it
    is not waited for, and calls are Python's until it is there.

    ``measure``, as ``torch.backends.cudnn.benchmark`` does, times the plans that are predicted to
    take nearly as long as the planner's pick, on the model's GPU with a cold L2 cache, and lets
    calls take the fastest from then on; where images are to have the same bits in every batch the
    pick stays. The seconds are kept beside the kernels, so that the same call of another process
    takes no time, and ``timed`` of the result has them.

    Raises ValueError for a model on the CPU without a device, for one that is to be measured
    elsewhere than where it is, and as ``convert`` does for what is no model and for devices; what
    the layers themselves refuse; MachineError without NVRTC.

    >>> layer = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())  # none of winolab's
    >>> print(warmup(layer, torch.ones(1, 3, 8, 8), device="h100"))
    0 kernels: 0 compiled in 0.0 s, 0 in the cache
    """
    check_module(model)
    gpu = stated_gpu(device) or gpu_of(model)
    if gpu is None:
        raise ValueError("the model is on the CPU, which compiles nothing; name a GPU by device")
    if measure and device:
        raise ValueError("what is measured runs: move the model to the GPU, and name no device")
    if measure:
        _forget(model)  # calls that were made before, which ask nothing
    asked = None if device or model.training else _observed(model, inputs)
    if asked is None:
        asked = [
            (asked_by(direction, more), a, b)
            for direction, a, b, more in _recorded_calls(model, inputs)
        ]
    shown = progress and sys.stderr.isatty()
    if asked and gpu_of(model):
        NATIVE.begin()
    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("planning and compiling", total=None)

        def planned() -> Iterator[warm.Unit]:
            known: set[tuple[Source, str]] = set()
            for question, a, b in sorted(asked, key=_taps, reverse=True):
                for unit in units(question, a, b, gpu, not model.training):
                    yield unit
                    known.add((unit.source, unit.arch))
            bar.update(task, total=len(known))

        warmed = warm.compile_all(planned(), workers, lambda: bar.advance(task))
        if measure:
            with torch.cuda.device(next(model.parameters()).device):
                timed = _timed(asked, gpu, not model.training, workers, bar)
            warmed = replace(warmed, timed=timed)
            _forget(model)
    if wait:
        NATIVE.wait()
    return warmed


def _timed(
    asked: list[tuple[Asked, Tensor, Tensor]],
    gpu: Device,
    kept: bool,
    workers: int | None,
    bar: Progress,
) -> tuple[warm.Timed, ...]:
    """What a clock says of the plans of these calls."""
    from winolab.bench import picks  # which needs a GPU

    found: dict[Any, warm.Timed | None] = {}
    for _ in range(2):  # what takes a filter transformed apart asks for one more plan
        with plans.observed() as requests:
            for question, a, b in asked:
                if not question.options.batch_invariant:
                    units(question, a, b, gpu, kept)
        new = [request for request in requests if request not in found]
        task = bar.add_task("measuring", total=len(new))
        timed = picks.prefer(new, workers, partial(bar.advance, task))
        found |= dict.fromkeys(new) | {(one.request, one.apart): one for one in timed}
    return tuple(one for one in found.values() if one)


def _forget(model: nn.Module) -> None:
    """Let what was called before be planned again."""
    smaller.changed()
    calls.kept.clear()
    NATIVE.forget()
    for module in model.modules():
        if isinstance(kept := getattr(module, "kept", None), KeptFilters):
            kept.forget()


def _taps(call: tuple[Asked, Tensor, Tensor]) -> int:
    """The filter's taps, or those of its gradient, of more of which kernels take longer to compile:
    what begins first is not waited for at the end."""
    question, _, b = call
    shape = b.shape
    if question.direction == "backward_filter":
        shape = question.geometry.result_shape or shape
    return math.prod(shape[2:])


def _observed(model: nn.Module, inputs: Any) -> list[tuple[Asked, Tensor, Tensor]] | None:
    """What the model asks, as it is called in evaluation; None where the call fails, which tensors
    without numbers explain."""
    before = State(model)
    gpus = {p.get_device() for p in model.parameters() if p.is_cuda}
    benchmark = torch._C._get_cudnn_benchmark()  # which would time its algorithms
    OBSERVED.calls = found = []
    try:
        torch._C._set_cudnn_benchmark(False)  # PyTorch's tests forbid the flag of torch.backends
        with torch.no_grad(), torch.random.fork_rng(gpus):
            model(*(inputs if isinstance(inputs, tuple | list) else (inputs,)))
    except Exception as error:
        log.info("the model cannot be called as it is (%s)", error)
        return None
    finally:
        OBSERVED.calls = None
        torch._C._set_cudnn_benchmark(benchmark)
        before.put_back()
    return found


def _recorded_calls(
    model: nn.Module, inputs: Any
) -> list[tuple[str, Tensor, Tensor, tuple[Any, ...]]]:
    """The operators that the model calls, its gradients' too where it is in training."""
    with without_numbers(model, "call it: a call compiles what it runs") as fake:
        return _recorded(model, fake(inputs))


def _recorded(
    model: nn.Module, inputs: list[Any]
) -> list[tuple[str, Tensor, Tensor, tuple[Any, ...]]]:
    with Recorded() as recorded:
        with torch.set_grad_enabled(model.training):
            results = model(*inputs)
        if model.training:
            found = (v for v in tree_leaves(results) if isinstance(v, Tensor) and v.requires_grad)
            losses = [v.float().square().sum() for v in found]
            if losses:
                torch.autograd.backward(losses)
    return recorded.calls


def compile_in_background(on: bool = True) -> None:
    """Let calls on a GPU whose kernels are not compiled yet run PyTorch's convolution, without
    TF32, while threads compile them; what is called later runs the kernels.

    Results then differ by rounding from one call to a later one, in a way that depends on time:
    off unless it is asked for, and without effect on calls that name an algorithm. What CUDA graphs
    capture meanwhile stays PyTorch's. Else a call waits, and logs what it waits for: those of
    winolab.conv_forward and its gradients always do, but where a tensor requires grad.

    >>> compile_in_background(True)
    >>> compile_in_background(False)
    """
    BACKGROUND.on = on
