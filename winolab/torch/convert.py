"""A network of torch.nn's convolutions put on winolab, layer by layer, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from inspect import isroutine
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from winolab.arguments.words import agreeing, plural, type_of
from winolab.device import Device, datasheet
from winolab.kind import ShowsText
from winolab.torch.fake.calls import without_numbers
from winolab.torch.modules import OURS, Convolution, check_options
from winolab.torch.predicted import Predicted, predicted, smallest


@dataclass(frozen=True)
class Layer:
    """One convolution of a network: whether it is winolab's now, or why it stayed.

    ``input_shape`` and ``predicted``, one a direction that the layer's mode has, are there where
    inputs were given. Times are seconds, None on the CPU; errors are relative RMS, of data uniform
    on [-1, 1].
    """

    name: str
    layer: str
    converted: bool
    why: str = ""  # it stayed
    input_shape: tuple[int, ...] | None = None
    predicted: tuple[Predicted, ...] = ()


@dataclass(frozen=True)
class Conversion(ShowsText):
    """What ``convert`` did. ``print`` shows a line a layer and direction."""

    layers: tuple[Layer, ...]

    def to_dict(self) -> dict[str, Any]:
        """The layers as JSON has them."""
        return {"layers": [asdict(layer) for layer in self.layers]}

    def __str__(self) -> str:
        count = sum(layer.converted for layer in self.layers)
        head = ("layer", "input", "direction", "algorithm", "relative RMS", "µs")
        rows = [row for layer in self.layers if layer.converted for row in _rows(layer)]
        are, convolutions = agreeing(count, "is", "are"), plural(len(self.layers), "convolution")
        said = f"{count} of {convolutions} {are} winolab's"
        stay = [f"{layer.name} stays: {layer.why}" for layer in self.layers if layer.why]
        return "\n".join([said, *(aligned([head, *rows]) if rows else ()), *stay])


def convert(
    model: nn.Module,
    inputs: Any = None,
    *,
    algorithm: Any = None,
    precision: Any = None,
    tolerance: Any = None,
    batch_invariant: bool = False,
    device: str | Device | None = None,
) -> Conversion:
    """Put every convolution of the model on winolab, in place, and tell what became of each.

    Layers of torch.nn's own classes, Conv1d to ConvTranspose3d, become winolab.torch's; their
    parameters, parametrizations, hooks and names stay, so that optimizers and state dicts do. Of
    subclasses and of instances with functions of their own the result says why they stay as they
    are, as it does of dtypes, algorithms and tolerances that do not serve a layer. ``algorithm``,
    ``precision``, ``tolerance`` and ``batch_invariant`` are those of winolab.torch.conv2d, for
    every layer. Whatever is raised, the model is as it was.

    ``inputs``, a tensor or a tuple of them, are what the model is called with: only their shapes,
    dtypes and devices count, nothing is computed. They tell each layer's shapes, and the result
    then has the algorithm, the predicted error and, on a GPU, the predicted time of every
    direction: forward, and the gradients if the model is in training. ``device`` is the GPU that is
    meant, a name of ``winolab devices`` or a Device; None is where the model is. Under
    ``torch.autocast``, around the call or in the model, all that is of what autocast casts to.

    Raises TypeError for what is no module or no device, ValueError for what names no algorithm and
    so on, and, with inputs, for lazy layers, for a model that reads numbers, and for one that keeps
    tensors where they cannot be taken back.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    >>> print(convert(model, torch.ones(1, 3, 16, 16), tolerance=1e-6))
    2 of 2 convolutions are winolab's
    layer  input      direction  algorithm  relative RMS  µs
    0      1×3×16×16  forward    dwm:3:4    7.4e-07       -
    2      1×8×16×16  forward    dwm:3:2    1.3e-07       -
    """
    check_module(model)
    check_options(algorithm, precision, tolerance, batch_invariant)
    gpu = stated_gpu(device)
    kind = "cuda" if gpu else None
    given = {} if inputs is None else inputs_met(model, inputs, kind)
    how = algorithm, precision, tolerance, batch_invariant
    layers: list[Layer] = []
    before = [(each, type(each), dict(vars(each))) for _, each in convolutions(model)]
    try:
        for name, module in convolutions(model):
            where = gpu or gpu_of(module)
            met = given.get(module) or Input(None, _cast(module, kind))
            layers.append(_converted(name, module, met, how, where))
    except BaseException:
        for each, theirs, state in before:
            _put_back(each, theirs, state)
        raise
    return Conversion(tuple(layers))


def stated_gpu(device: Any) -> Device | None:
    """The GPU that a caller means, None for None. Raises ValueError for unknown names, TypeError
    for what is no device."""
    gpu = datasheet(device) if isinstance(device, str) else device
    if gpu is not None and not isinstance(gpu, Device):
        raise TypeError(f"device is {type_of(gpu)}; expected a GPU's name or a Device")
    return gpu


def check_module(model: Any) -> None:
    """Raise TypeError for what is no module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {type_of(model)}; expected a torch.nn.Module")


def _converted(
    name: str,
    module: nn.Module,
    met: Input,
    how: tuple[Any, ...],
    gpu: Device | None,
) -> Layer:
    """The layer, its class changed unless it has to stay, as it was."""
    theirs, state, text, shape = type(module), dict(vars(module)), str(module), met.shape
    layer: Any = module
    ours = theirs if issubclass(theirs, Convolution) else _ours(module)
    if ours is None:
        return Layer(name, text, False, _foreign(theirs), shape)
    # Whoever put functions into one instance meant another computation.
    if own := next((key for key in state if isroutine(getattr(ours, key, None))), None):
        why = f"its {own} is the instance's own: what that changes is not known"
        return Layer(name, text, False, why, shape)
    try:
        layer.__class__ = ours
        layer.computes(*how)
        found = predicted(layer, shape or smallest(layer), gpu, met.cast)
    except (ValueError, TypeError, RuntimeError) as error:  # PyTorch's are the last
        _put_back(module, theirs, state)
        return Layer(name, text, False, " ".join(str(error).split()), shape)
    return Layer(name, text, True, "", shape, found if shape else ())


def _put_back(module: nn.Module, theirs: type, state: dict[str, Any]) -> None:
    """Make it the module again that it was."""
    module.__class__ = theirs  # pyright: ignore[reportAttributeAccessIssue]
    vars(module).clear()
    vars(module).update(state)


def gpu_of(model: nn.Module) -> Device | None:
    """The GPU of the first parameter; None where that is on the CPU."""
    place = next((p.device for p in model.parameters()), None)
    if place is None or place.type != "cuda":
        return None
    from winolab.gpu import driver

    return driver.device(place.index)


def convolutions(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The names and modules of the model that are torch.nn's convolutions or derive from them, and
    quantized ones."""
    for name, module in model.named_modules():
        kind = type(module)
        quantized = kind.__module__.startswith("torch.ao.nn.") and "Conv" in kind.__name__
        if isinstance(module, nn.modules.conv._ConvNd) or quantized:
            yield name, module


class Input(NamedTuple):
    """What a convolution is called with first: its shape, where that is known, and what autocast
    makes of it, where that is on."""

    shape: tuple[int, ...] | None
    cast: torch.dtype | None


def _cast(module: nn.Module, kind: str | None) -> torch.dtype | None:
    """What autocast makes of a layer's operands on a kind of device, by default on its own."""
    place = next((p.device.type for p in module.parameters()), "cpu")
    on = (each for each in (kind or place, place) if torch.is_autocast_enabled(each))
    return next(map(torch.get_autocast_dtype, on), None)


def inputs_met(model: nn.Module, inputs: Any, kind: str | None) -> dict[nn.Module, Input]:
    """The first input that each convolution meets, by a call that computes nothing; ``kind`` of
    device is meant, by default the layer's own.

    What the call leaves, tensors without numbers, is taken back.
    """
    found: dict[nn.Module, Input] = {}

    def note(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        x = arguments[0] if arguments else named.get("input")
        if not isinstance(x, Tensor):
            raise TypeError(f"input is {type_of(x)}; expected a torch tensor")
        found.setdefault(module, Input(tuple(x.shape), _cast(module, kind)))

    with without_numbers(model, "convert it without inputs") as fake, torch.no_grad():
        hooks = [
            module.register_forward_pre_hook(note, with_kwargs=True)
            for _, module in convolutions(model)
        ]
        try:
            model(*fake(inputs))
        finally:
            for hook in hooks:
                hook.remove()
    return found


def _ours(module: nn.Module) -> type | None:
    """The class that the module gets; None for a class that is not torch.nn's own. What
    parametrizations put into a class of its own, such as the property that makes the weight, they
    have in one that derives from ours."""
    theirs: type = type(module)
    if not parametrize.is_parametrized(module):
        return OURS.get(theirs)
    ours = OURS.get(parametrize.type_before_parametrizations(module))
    own = {k: v for k, v in vars(theirs).items() if k not in ("__dict__", "__weakref__")}
    return ours and type(theirs.__name__, (ours,), own)


def _foreign(kind: type) -> str:
    if "Lazy" in kind.__name__:
        return f"{kind.__name__} has no weight yet: call the model once, then convert"
    if kind.__module__.startswith("torch.ao.nn."):
        return f"{kind.__module__}.{kind.__name__} is of quantization, which is not served"
    return f"{kind.__name__} is not torch.nn's own: what it changes is not known"


def _rows(layer: Layer) -> list[tuple[str, ...]]:
    shape = "×".join(map(str, layer.input_shape or ())) or "-"
    if not layer.predicted:
        return [(layer.name, shape, "any", "-", "-", "-")]
    return [
        (
            layer.name,
            shape,
            found.direction,
            found.algorithm,
            f"{found.relative_rms:.1e}",
            "-" if found.seconds is None else f"{1e6 * found.seconds:.1f}",
        )
        for found in layer.predicted
    ]


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of text, each column as wide as its widest cell."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
