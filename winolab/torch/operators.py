"""The three convolutions as operators of PyTorch, which its transforms know.

Each operator is winolab::conv_DIRECTION(a, b, [result's shape,] geometry, options) with kernels a
dispatch key: CPU and CUDA compute, Meta tells shapes, Autograd and the vmap rules differentiate
and batch (derivatives, batching), Autocast casts as torch.nn.functional's convolutions do.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from itertools import product
from operator import or_
from threading import Thread
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowADInplaceOrView as _below
from torch._C import _dispatch_keys as _keys_of
from torch._C import _dispatch_tls_local_exclude_set as _excluded
from torch._C import _dispatch_tls_local_include_set as _included
from torch._C import _len_torch_function_stack as _functions_above
from torch._C._autograd import _profiler_enabled
from torch.autograd import forward_ad

from winolab.calls import recall
from winolab.device import Device
from winolab.gpu import warm
from winolab.gpu.runtime.arrays import Described
from winolab.torch import batching, cpu, derivatives
from winolab.torch.asked import DIRECTIONS, SCHEMA, Asked, asked, check_tensors

LIBRARY = torch.library.Library("winolab", "DEF")
GEOMETRY = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups"
SIGNATURES = {
    "forward": "Tensor x, Tensor w",
    "backward_data": "Tensor dy, Tensor w, SymInt[] input_shape",
    "backward_filter": "Tensor x, Tensor dy, SymInt[] filter_shape",
}
for _direction, _operands in SIGNATURES.items():
    LIBRARY.define(
        f"conv_{_direction}({_operands}, {GEOMETRY}, {SCHEMA}) -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
OPERATORS = {each: getattr(torch.ops.winolab, f"conv_{each}").default for each in DIRECTIONS}
AUTOCAST = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


def asked_by(direction: str, arguments: tuple[Any, ...]) -> Asked:
    """What an operator is asked for by its arguments behind the operands."""
    shape = None
    if direction != "forward":
        shape, *arguments = arguments  # pyright: ignore[reportAssignmentType]
        shape = tuple(shape)
    stride, padding, dilation, groups, *options = arguments
    return asked(direction, shape, tuple(stride), tuple(padding), tuple(dilation), groups, *options)


def _on_cpu(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    check_tensors(direction, a, b)
    return cpu.convolve(asked_by(direction, arguments), a, b)


def _on_cuda(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    question = asked_by(direction, arguments)
    known = recall(question, a, b, None)
    if known:
        return known.run(a, b, None)
    from winolab.gpu.runtime import conv as kernels

    check_tensors(direction, a, b)
    problem = question.problem(tuple(a.shape), tuple(b.shape))
    if not compiled(question, a, b):
        return cpu.meanwhile(direction, problem, a, b)
    return kernels.convolve(direction, problem, a, b, question.options, None, question)


def compiled(question: Asked, a: Tensor, b: Tensor) -> bool:
    """Whether to run the kernels: they are compiled, or to be waited for."""
    if not BACKGROUND.on or question.options.algorithm is not None:
        return True
    call = (question, *((v.shape, v.stride(), v.dtype, v.device) for v in (a, b)))
    return BACKGROUND.ready(call, lambda: units(question, a, b))


def units(
    question: Asked, a: Tensor, b: Tensor, gpu: Device | None = None, kept: bool = True
) -> list[warm.Unit]:
    """What a call loads on a GPU, by default a's; ``kept``: also where its filter is kept."""
    from winolab.gpu import driver

    described = (
        Described(tuple(v.shape), v.stride(), str(v.dtype).removeprefix("torch."), 0, True)
        for v in (a, b)
    )
    return warm.calls_units(
        question.direction,
        question.problem(tuple(a.shape), tuple(b.shape)),
        gpu or driver.device(a.device.index),
        question.options,
        *described,
        kept=kept and question.direction != "backward_filter",
    )


def _call(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """The operator's result; without the dispatcher, which takes half of a call and under autocast
    most of it, where its sets of keys say that no other mode and no transform looks on."""
    if not torch.compiler.is_compiling():
        casting = _casting_only(a, b)
        if casting is not None:
            device = "cuda" if a.is_cuda else "cpu"
            if device not in casting:
                return _tracked(direction, a, b, arguments)
            a, b = _as_cast(device, a, b)
            with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEYS[device]):
                return _tracked(direction, a, b, arguments)
        if torch._C._get_tracing_state() is not None:
            raise ValueError("torch.jit.trace does not know this operator; use torch.export.export")
    return OPERATORS[direction](a, b, *arguments)


def _tracked(direction: str, a: Tensor, b: Tensor, arguments: tuple[Any, ...]) -> Tensor:
    if (a.requires_grad or b.requires_grad) and torch.is_grad_enabled():
        return FUNCTIONS[direction](None, a, b, arguments)
    return directly(direction, a, b, *arguments)


def directly(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """The result, of operands as they are: nothing differentiates, casts or traces it."""
    with _below():
        return (_on_cuda if a.is_cuda else _on_cpu)(direction, a, b, *arguments)


def _casting_only(a: Tensor, b: Tensor) -> frozenset[str] | None:
    """The devices that autocast is on for, where only it and gradients look on; else None."""
    if type(a) not in TENSORS or type(b) not in TENSORS:
        return None
    plain = PLAIN["cuda" if a.is_cuda else "cpu"]
    if (
        _keys_of(a).raw_repr() in plain
        and _keys_of(b).raw_repr() in plain
        and forward_ad._current_level < 0
        and not _functions_above()
        and not _profiler_enabled()
    ):
        return CASTING.get((_included().raw_repr(), _excluded().raw_repr()))
    return None


def _local() -> tuple[int, int]:
    """Keys that the dispatcher adds and leaves out in this thread, as modes and transforms say."""
    return _included().raw_repr(), _excluded().raw_repr()


def _usual() -> list[tuple[int, int]]:
    """The keys of a thread that nothing was said to, and of one in inference mode."""
    found: list[tuple[int, int]] = []

    def look() -> None:
        found.append(_local())
        with torch.inference_mode():
            found.append(_local())

    thread = Thread(target=look)
    thread.start()
    thread.join()
    return found


def _keys(device: str) -> Iterator[int]:
    """Keys of a tensor that only gradients and autocast may look on at, made in inference mode or
    not."""
    for names in ((), (f"Autograd{device}", "ADInplaceOrView")):
        every = (device, f"Autocast{device}", *names)
        sets = (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)) for name in every)
        yield reduce(or_, sets).raw_repr()


AUTOCAST_KEYS = {
    device: torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    for device, key in AUTOCAST.items()
}


def _casts_by_keys() -> dict[tuple[int, int], frozenset[str]]:
    """The sets of keys of a thread in which autocast alone is switched on, and for which devices:
    what is off is left out of a call."""
    found = {}
    every = (frozenset(), frozenset({"cpu"}), frozenset({"cuda"}), frozenset(AUTOCAST))
    for (included, excluded), devices in product(_usual(), every):
        on = reduce(or_, (AUTOCAST_KEYS[device].raw_repr() for device in devices), 0)
        found[included, excluded & ~on] = devices
    return found


BACKGROUND = warm.Background()
TENSORS = frozenset({Tensor, torch.nn.Parameter})
CASTING = _casts_by_keys()
PLAIN = {device.lower(): frozenset(_keys(device)) for device in ("CPU", "CUDA")}
forward, backward_data, backward_filter = (partial(_call, each) for each in DIRECTIONS)
CALLS: dict[str, Any] = dict(
    zip(DIRECTIONS, (forward, backward_data, backward_filter), strict=True)
)
FUNCTIONS: dict[str, Any] = {}


def _on_meta(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """A result's shape, dtype and order in memory, sizes symbolic or not."""
    check_tensors(direction, a, b)
    shape = None
    if direction != "forward":
        shape, *arguments = arguments  # pyright: ignore[reportAssignmentType]
    stride, padding, dilation, groups, *options = arguments
    sizes = (*a.shape, *b.shape, *(shape or ()), *stride, *padding, *dilation, groups)
    if all(type(size) is int for size in sizes):
        rest = arguments if shape is None else (shape, *arguments)
        asked_by(direction, tuple(rest)).problem(tuple(a.shape), tuple(b.shape))
    if shape is None:
        geometry = zip(
            a.shape[2:], b.shape[2:], stride, padding[::2], padding[1::2], dilation, strict=True
        )
        outputs = [(n + lo + hi - d * (r - 1) - 1) // s + 1 for n, r, s, lo, hi, d in geometry]
        shape = [a.shape[0], b.shape[0], *outputs]
    dtype = options[2] if len(options) > 2 and options[2] else a.dtype
    return cpu.laid_like(a, a.new_empty(shape, dtype=dtype))


def _cast(direction: str, device: str, key: Any, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    with torch._C._ExcludeDispatchKeyGuard(key):
        return OPERATORS[direction](*_as_cast(device, a, b), *arguments)


def _as_cast(device: str, *operands: Tensor) -> tuple[Tensor, ...]:
    """The operands as autocast has them."""
    dtype = torch.get_autocast_dtype(device)
    return tuple(v.to(dtype) if _casts(v, device) else v for v in operands)


def _casts(v: Tensor, device: str) -> bool:
    """Whether autocast casts it, as at::autocast::is_eligible says."""
    return v.is_floating_point() and v.dtype != torch.float64 and v.device.type == device


def _register(direction: str) -> None:
    def bound(kernel: Any, *first: Any) -> Any:
        return lambda *arguments: kernel(direction, *first, *arguments)

    name = f"conv_{direction}"
    LIBRARY.impl(name, bound(_on_cpu), "CPU")
    LIBRARY.impl(name, bound(_on_cuda), "CUDA")
    torch.library.register_fake(f"winolab::{name}", bound(_on_meta), lib=LIBRARY)
    FUNCTIONS[direction] = derivatives.register(
        LIBRARY, direction, OPERATORS[direction], directly, CALLS
    )
    batching.register(LIBRARY, direction, OPERATORS[direction])
    for device, key in AUTOCAST.items():
        LIBRARY.impl(name, bound(_cast, device, AUTOCAST_KEYS[device]), key)


for _direction in DIRECTIONS:
    _register(_direction)
