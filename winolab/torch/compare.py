"""Each layer of a network beside PyTorch's: its error against FP64, and its time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from winolab.api import picture
from winolab.arguments.values import whole
from winolab.kind import ShowsText
from winolab.torch.convert import aligned, check_module
from winolab.torch.kept import KeptFilters
from winolab.torch.modules import OURS, Convolution
from winolab.torch.predicted import still

THEIRS = {ours: theirs for theirs, ours in OURS.items()}


@dataclass(frozen=True)
class Compared:
    """One layer's forward: relative RMS errors against FP64, median seconds, of ours and PyTorch's.

    Both have the layer's input as it came, cast as autocast casts; so has FP64.
    """

    name: str
    input_shape: tuple[int, ...]
    error: float
    pytorch_error: float
    seconds: float
    pytorch_seconds: float


@dataclass(frozen=True)
class Comparison(ShowsText):
    """What ``compare`` measured, a line a layer; ``plot`` draws it."""

    layers: tuple[Compared, ...]

    def to_dict(self) -> dict[str, Any]:
        """The layers as JSON has them; times in seconds."""
        return {"layers": [asdict(layer) for layer in self.layers]}

    def __str__(self) -> str:
        head = ("layer", "input", "RMS", "PyTorch's", "µs", "PyTorch's", "times as fast")
        rows = [
            (
                c.name,
                "×".join(map(str, c.input_shape)),
                f"{c.error:.1e}",
                f"{c.pytorch_error:.1e}",
                f"{1e6 * c.seconds:.1f}",
                f"{1e6 * c.pytorch_seconds:.1f}",
                f"{c.pytorch_seconds / c.seconds:.2f}",
            )
            for c in self.layers
        ]
        return "\n".join(aligned([head, *rows]))

    def plot(self, axes: Any = None) -> Any:
        """Errors over times, a line from PyTorch's to ours a layer, on matplotlib's axes.

        Returns the axes, new ones unless some are given. Raises ValueError without matplotlib.
        """
        axes = picture.axes(axes)
        for c in self.layers:
            times = [1e6 * c.pytorch_seconds, 1e6 * c.seconds]
            axes.plot(times, [c.pytorch_error, c.error], color="0.75", zorder=1)
        for named, time_of, error_of in (
            ("PyTorch", "pytorch_seconds", "pytorch_error"),
            ("winolab", "seconds", "error"),
        ):
            times = [1e6 * getattr(c, time_of) for c in self.layers]
            axes.scatter(times, [getattr(c, error_of) for c in self.layers], label=named, zorder=2)
        axes.set(xscale="log", yscale="log", xlabel="µs a call", ylabel="relative RMS error")
        axes.set_title("Each layer: from PyTorch to winolab")
        axes.legend()
        return axes


def compare(model: nn.Module, inputs: Any, *, rounds: int = 11) -> Comparison:
    """Run the model on the inputs, a tensor or a tuple, and measure each of winolab's layers there.

    Every convolution that is winolab's is called ``rounds`` times beside torch.nn's with the same
    parameters, in turn, on the input that it meets; the result has both medians and both errors
    against FP64. The model's mode stays, so that normalizations in training see one batch more; no
    gradients are computed. Layers that are called more than once are measured the first time.

    Raises TypeError for what is no module, ValueError for a model without winolab's layers.

    >>> from winolab.torch import convert
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    >>> done = convert(model, tolerance=1e-6)
    >>> [each.error < 1e-6 for each in compare(model, torch.rand(2, 3, 12, 12)).layers]
    [True, True]
    """
    check_module(model)
    if whole(rounds, "rounds") < 1:
        raise ValueError(f"rounds is {rounds}; expected 1 or more")
    names: dict[nn.Module, str] = {
        m: name for name, m in model.named_modules() if isinstance(m, Convolution)
    }
    if not names:
        raise ValueError("the model has no layer of winolab; convert it first")
    found: dict[nn.Module, Compared] = {}

    def measure(module: nn.Module, arguments: tuple[Any, ...], named: Any, _: Any) -> None:
        if module not in found:
            found[module] = _compared(names[module], module, arguments, dict(named), rounds)

    hooks = [module.register_forward_hook(measure, with_kwargs=True) for module in names]
    try:
        with torch.no_grad():
            model(*(inputs if isinstance(inputs, tuple | list) else (inputs,)))
    finally:
        for hook in hooks:
            hook.remove()
    return Comparison(tuple(found[module] for module in names if module in found))


def _compared(
    name: str, module: Any, arguments: tuple[Any, ...], named: dict[str, Any], rounds: int
) -> Compared:
    x, *rest = arguments or (named.pop("input"),)
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    theirs = _twin(module, x.dtype)
    wide = torch.complex128 if x.is_complex() else torch.float64
    exact = _twin(module, x.dtype, wide=wide)
    with torch.autocast(device, enabled=False):
        y = exact(x.to(wide), *rest, **named)
        mine = _twin(module, x.dtype, ours=True)
        calls = {
            "ours": lambda: mine(x, *rest, **named),
            "theirs": lambda: theirs(x, *rest, **named),
        }
        errors = {who: _relative_rms(call(), y) for who, call in calls.items()}
        times = _medians(calls, x, rounds)
    return Compared(
        name, tuple(x.shape), errors["ours"], errors["theirs"], times["ours"], times["theirs"]
    )


def _twin(
    module: Any, dtype: torch.dtype, ours: bool = False, wide: torch.dtype | None = None
) -> Any:
    """The layer alone, without hooks and parametrizations, of torch.nn's class or of ours; its
    parameters in that dtype, then in a ``wide`` one."""
    kind: Any = parametrize.type_before_parametrizations(module)
    kind = kind if ours else THEIRS[kind]
    with still(module):
        parameters = {"weight": module.weight, "bias": module.bias}
    twin = kind.__new__(kind)
    twin.__dict__.update(module.__dict__)
    twin.__dict__.pop("weight", None)  # where a hook had put it
    twin._forward_hooks, twin._forward_pre_hooks, twin._modules = {}, {}, {}
    twin._parameters = {
        key: None
        if p is None
        else nn.Parameter(p.detach().to(dtype).to(wide or dtype), requires_grad=False)
        for key, p in parameters.items()
    }
    twin.kept = KeptFilters()
    return twin


def _relative_rms(y: Tensor, exact: Tensor) -> float:
    size = float(exact.abs().square().sum())
    return float(((y - exact).abs().square().sum() / size).sqrt()) if size else 0.0


def _medians(calls: dict[str, Callable[[], Any]], x: Tensor, rounds: int) -> dict[str, float]:
    """Median seconds of each call, in turn: between CUDA events, or by the clock on the CPU."""
    timed = _on_gpu if x.device.type == "cuda" else _on_cpu
    times: dict[str, list[float]] = {who: [] for who in calls}
    with torch.cuda.device(x.device) if timed is _on_gpu else nullcontext():
        for call in calls.values():
            call()
        for _ in range(rounds):
            for who, call in calls.items():
                times[who].append(timed(call))
    return {who: statistics.median(found) for who, found in times.items()}


def _on_cpu(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _on_gpu(call: Callable[[], Any]) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()  # the GPU is busy while the host queues the next
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3
