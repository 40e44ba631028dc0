"""The three convolutions as operators of PyTorch, which its transforms know.

Each operator is winolab::conv_DIRECTION(a, b, [result's shape,] geometry, options) with kernels a
dispatch key: CPU and CUDA compute, Meta tells shapes, Autograd and the vmap rules differentiate
and batch (derivatives, batching), Autocast casts as torch.nn.functional's convolutions do.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowADInplaceOrView as _below
from torch.compiler import is_dynamo_compiling
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as _modes

from winolab.arguments.arrays import on_gpu
from winolab.calls import recall
from winolab.device import Device
from winolab.gpu import warm
from winolab.gpu.runtime import smaller
from winolab.gpu.runtime.arrays import Described
from winolab.options import ConvOptions
from winolab.problem import NAMES
from winolab.torch import batching, cpu, derivatives, plain
from winolab.torch.asked import (
    DIRECTIONS,
    NUMBERS,
    SCHEMA,
    Asked,
    as_fresh,
    asked,
    check_dense,
    check_tensors,
    of_part,
)
from winolab.torch.plain import AUTOCAST, AUTOCAST_KEYS, NO_AUTOCAST

NOT_DENSE = ("Sparse", "SparseCsr", "Quantized", "NestedTensor")  # dispatch keys of CPUs and GPUs
LIBRARY = torch.library.Library("winolab", "DEF")
GEOMETRY = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups"
SIGNATURES = {
    "forward": "Tensor x, Tensor w",
    "backward_data": "Tensor dy, Tensor w, SymInt[] input_shape",
    "backward_filter": "Tensor x, Tensor dy, SymInt[] filter_shape",
}
for _direction, _operands in SIGNATURES.items():
    for _name in (f"conv_{_direction}", f"conv_{_direction}_unknown"):  # of derivatives.register
        LIBRARY.define(
            f"{_name}({_operands}, {GEOMETRY}, {SCHEMA}) -> Tensor",
            tags=(torch.Tag.pt2_compliant_tag,),
        )
PACKETS = {each: getattr(torch.ops.winolab, f"conv_{each}") for each in DIRECTIONS}
OPERATORS = {direction: packet.default for direction, packet in PACKETS.items()}


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
    question = asked_by(direction, arguments)
    if question.options.batch_invariant:
        return in_parts(direction, partial(_of_plain, direction, b), a, arguments, 0)
    return cpu.convolve(question, a, b)


def _refused(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """Raises TypeError: an operand is not dense, of which the dispatcher would write pages."""
    for name, v in zip(NAMES[direction], (a, b), strict=False):
        check_dense(name, v)
    raise AssertionError("an operand that is not dense has led here")


def _on_cuda(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    arguments = plain.hashed(arguments)
    question = asked_by(direction, arguments)
    try:
        return _run(direction, question, a, b, arguments)
    except smaller.NoWorkspace:
        if not question.options.batch_invariant:
            raise
        return _in_less(direction, question, a, b, arguments)


def _run(
    direction: str, question: Asked, a: Tensor, b: Tensor, arguments: tuple[Any, ...]
) -> Tensor:
    known = recall(question, a, b, None)
    if known:
        plain.keep((direction, arguments), a, b, known)
        return known.run(a, b, None)
    from winolab.gpu.runtime import conv as kernels

    check_tensors(direction, a, b)
    problem = question.problem(tuple(a.shape), tuple(b.shape))
    if not compiled(question, a, b):
        return cpu.meanwhile(direction, problem, a, b, question.options.out_dtype)
    a = as_fresh(question, a)
    images, options = how(question, a, b)
    if images < len(a):
        return in_parts(direction, partial(_of_plain, direction, b), a, arguments, images)
    return kernels.convolve(direction, problem, a, b, options, None, question)


class _Observed(threading.local):
    """Per thread, where calls that were not made before are noted, and no kernel runs; or None."""

    calls: list[tuple[Asked, Tensor, Tensor]] | None = None


OBSERVED = _Observed()


def compiled(question: Asked, a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether to run the kernels: they are compiled, or to be waited for. ``dtype``: what autocast
    is yet to make of b."""
    if OBSERVED.calls is not None:
        OBSERVED.calls.append((question, shape_of(a), shape_of(b, dtype)))
        return False
    options = question.options
    if not BACKGROUND.on or options.algorithm is not None or options.batch_invariant:
        return True
    b = b if dtype in (None, b.dtype) else shape_of(b, dtype)
    call = (question, *((v.shape, v.stride(), v.dtype, v.device) for v in (a, b)))
    return BACKGROUND.ready(call, lambda: units(question, a, b))


def shape_of(v: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """One that lies like it, without memory."""
    return torch.empty_strided(v.shape, v.stride(), dtype=dtype or v.dtype, device="meta")


def units(
    question: Asked, a: Tensor, b: Tensor, gpu: Device | None = None, kept: bool = True
) -> list[warm.Unit]:
    """What a call loads on a GPU, by default a's; ``kept``: also where its filter is kept."""
    from winolab.gpu import driver

    gpu = gpu or driver.device(a.device.index)
    a = as_fresh(question, a)
    images, options = how(question, a, b, gpu=gpu)
    problem = question.problem(tuple(a.shape), tuple(b.shape))
    if images < len(a):
        a, problem = a[: images or 1], replace(problem, batch=images or 1)
    return warm.calls_units(
        question.direction,
        problem,
        gpu,
        options,
        *map(_described, (a, b)),
        kept=kept and question.direction != "backward_filter",
    )


def _described(v: Tensor, dtype: torch.dtype | None = None) -> Described:
    """How it lies, of that dtype, by default its own."""
    name = str(dtype or v.dtype).removeprefix("torch.")
    return Described(tuple(v.shape), v.stride(), name, max(0, v.get_device()), True)


def _call(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """The operator's result; without the dispatcher, which takes half of a call and under autocast
    most of it, where its sets of keys say that no other mode and no transform looks on."""
    if is_dynamo_compiling():
        return _compiled(direction, a, b, *arguments)
    y = past_python(direction, arguments, a, b)
    return _unknown(direction, a, b, *arguments) if y is None else y


def _compiled(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """The result in a compiled graph: where no gradients are recorded, of maps channels last on a
    GPU, as Inductor lays its own. It lies as uncompiled ones, whose views it has; filters' order
    comes with autocast's copy, the result's with what Inductor makes of its readers."""
    if not on_gpu(a) or (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)):
        return OPERATORS[direction](a, b, *arguments)
    y = OPERATORS[direction](cpu.last(a), cpu.last(b), *arguments)
    return y if a.stride(1) == 1 and not a.is_contiguous() else y.contiguous()


def _unknown(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """The same of what the native module was asked for in vain."""
    casting = plain.casting(a, b)
    if casting is not None:
        if casting:
            device = "cuda" if a.is_cuda else "cpu"
            if device in casting:
                a, b = _as_cast(device, a, b)
        if (a.requires_grad or b.requires_grad) and records():
            return FUNCTIONS[direction](None, a, b, arguments)
        return directly(direction, arguments, a, b)
    if torch._C._get_tracing_state() is not None:
        raise ValueError("torch.jit.trace does not know this operator; use torch.export.export")
    count_flops()
    return OPERATORS[direction](a, b, *arguments)


def count_flops() -> None:
    """Let PyTorch's counters of operations know those of the operators. Its module, which brings
    Triton, is not imported for that; a counter that is on has read before what there was."""
    module = sys.modules.get("torch.utils.flop_counter")
    if module is None:
        return
    modes = _modes()
    if not modes and PACKETS["forward"] in module.flop_registry:
        return
    for direction, packet in PACKETS.items():
        if packet not in module.flop_registry:
            module.register_flop_formula(packet)(partial(_flops, direction))
        for mode in modes:
            registry = getattr(getattr(mode, "counter", mode), "flop_registry", {})
            registry.setdefault(packet, module.flop_registry[packet])


def _flops(direction: str, a: Any, b: Any, *arguments: Any, out_shape: Any = None) -> int:
    """Two a multiply-add of direct convolution, whatever computes it."""
    w = out_shape if direction == "backward_filter" else b
    y = {"forward": out_shape, "backward_data": a, "backward_filter": b}[direction]
    return 2 * prod(y) * prod(w[1:])


def records() -> bool:
    """Whether gradients are recorded, which inference mode does not whatever is on in it."""
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def past_python(direction: str, arguments: tuple[Any, ...], a: Tensor, b: Tensor) -> Tensor | None:
    """The result of tensors that the native module knows; else None."""
    native = plain.NATIVE.call
    return native and native(NUMBERS[direction], arguments, a, b, None)


def directly(direction: str, arguments: tuple[Any, ...], a: Tensor, b: Tensor) -> Tensor:
    """The result, of plain tensors as they are: nothing differentiates, casts or traces it."""
    if quick := plain.known((direction, arguments), a, b):
        try:
            return quick(a, b)
        except smaller.NoWorkspace:  # as it is: images may be fewer
            pass
    with _below(), torch._C._ExcludeDispatchKeyGuard(NO_AUTOCAST):
        return (_on_cuda if a.is_cuda else _on_cpu)(direction, a, b, *arguments)


def _of_plain(direction: str, b: Tensor, a: Tensor, *arguments: Any) -> Tensor:
    y = past_python(direction, arguments, a, b)
    return directly(direction, arguments, a, b) if y is None else y


def in_parts(
    direction: str, one: Any, a: Tensor, arguments: tuple[Any, ...], images: int
) -> Tensor:
    """The result of ``one`` for so many images of a at a time, or for each by an operator that is
    not ``batch_invariant`` (0): all are computed again where memory lacks for some, which are
    planned with less workspace."""
    while True:
        before = smaller.changes()
        parts = ((v, of_part(direction, v, arguments, not images)) for v in a.split(images or 1))
        found = [one(part, *more) for part, more in parts]
        if before == smaller.changes():
            return cpu.laid_like(a, torch.cat(found))


def how(
    question: Asked,
    a: Tensor,
    b: Tensor,
    dtype: torch.dtype | None = None,
    gpu: Device | None = None,
) -> tuple[int, ConvOptions]:
    """How many images a call computes at once, and by which options: all, but where each image is
    to have the same bits in every batch. ``dtype`` is what autocast makes of b."""
    if not question.options.batch_invariant:
        return len(a), question.options
    return _images(question, tuple(a.shape), _described(b, dtype), gpu)


@lru_cache(maxsize=4096)
def _images(
    question: Asked, shape: tuple[int, ...], b: Described, gpu: Device | None
) -> tuple[int, ConvOptions]:
    from winolab.gpu.runtime.planned import images_at_once
    from winolab.gpu.runtime.resolve import resolve_filter

    problem = question.problem(shape, b.shape)
    asked = resolve_filter(question.direction, problem, question.options, b, gpu)
    images, options = images_at_once(asked)
    one = question, shape[1:], b, gpu
    return (0 if one in ALONE else images), options


ALONE: set[Any] = set()  # what takes more workspace for one image than there is memory


def _in_less(direction: str, question: Asked, a: Tensor, b: Tensor, arguments: Any) -> Tensor:
    """The result where memory lacks for the workspace of all images: of the half of them, or of
    each by a plan of less."""
    images = -(-len(a) // 2)
    if len(a) == 1:
        images, one = 0, (question, tuple(a.shape[1:]), _described(b), None)
        if one not in ALONE:  # batches that were begun begin anew
            ALONE.add(one)
            _images.cache_clear()
            smaller.changed()
    return in_parts(direction, partial(_of_plain, direction, b), a, arguments, images)


def _gradient(
    number: int, operand: int, a: Tensor, b: Tensor, upstream: Tensor, arguments: tuple[Any, ...]
) -> Tensor:
    """An operand's gradient, for the native module, which asks for what it does not know."""
    arrays = a, b, upstream
    by = derivatives.way(directly, CALLS, arrays)
    return by(operand, arrays, DIRECTIONS[number], arguments)


plain.NATIVE.gradient = _gradient
BACKGROUND = warm.Background()
forward, backward_data, backward_filter = (partial(_call, each) for each in DIRECTIONS)
CALLS: dict[str, Any] = dict(
    zip(DIRECTIONS, (forward, backward_data, backward_filter), strict=True)
)
UNKNOWN: dict[str, Any] = {each: partial(_unknown, each) for each in DIRECTIONS}
FUNCTIONS: dict[str, Any] = {}


def _on_meta(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """A result's shape, dtype and order in memory, sizes symbolic or not."""
    check_tensors(direction, a, b)
    shape = None
    if direction != "forward":
        shape, *arguments = arguments  # pyright: ignore[reportAssignmentType]
    stride, padding, dilation, groups, *options = arguments
    sizes = (*a.shape, *b.shape, *(shape or ()), *stride, *padding, *dilation, groups)
    if known := all(type(size) is int for size in sizes):
        rest = arguments if shape is None else (shape, *arguments)
        asked_by(direction, tuple(rest)).problem(tuple(a.shape), tuple(b.shape))
    if shape is None:
        geometry = zip(
            a.shape[2:], b.shape[2:], stride, padding[::2], padding[1::2], dilation, strict=True
        )
        outputs = [(n + lo + hi - d * (r - 1) - 1) // s + 1 for n, r, s, lo, hi, d in geometry]
        shape = [a.shape[0], b.shape[0], *outputs]
    dtype = options[2] if len(options) > 2 and options[2] else a.dtype
    first = None if known else cpu.first_of_symbols(a)
    return cpu.laid_like(a, a.new_empty(shape, dtype=dtype), first)


def _cast(direction: str, device: str, key: Any, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    with torch._C._ExcludeDispatchKeyGuard(key):
        return OPERATORS[direction](*_as_cast(device, a, b), *arguments)


def _as_cast(device: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The operands as autocast has them."""
    dtype = torch.get_autocast_dtype(device)
    if a.dtype != dtype and casts(a, device):
        a = a.to(dtype)
    if b.dtype != dtype and casts(b, device):
        b = b.to(dtype)
    return a, b


def casts(v: Tensor, device: str) -> bool:
    """Whether autocast casts it, as at::autocast::is_eligible says."""
    return v.is_floating_point() and v.dtype != torch.float64 and v.device.type == device


def _register(direction: str) -> None:
    def bound(kernel: Any, *first: Any) -> Any:
        return lambda *arguments: kernel(direction, *first, *arguments)

    name = f"conv_{direction}"
    LIBRARY.impl(name, bound(_on_cpu), "CPU")
    LIBRARY.impl(name, bound(_on_cuda), "CUDA")
    for key in ("MkldnnCPU", *(key + kind for key in NOT_DENSE for kind in ("CPU", "CUDA"))):
        LIBRARY.impl(name, bound(_refused), key)
    torch.library.register_fake(f"winolab::{name}", bound(_on_meta), lib=LIBRARY)
    FUNCTIONS[direction] = derivatives.register(
        LIBRARY, direction, OPERATORS[direction], directly, CALLS, count_flops
    )
    batching.register(LIBRARY, direction, OPERATORS[direction])
    for device, key in AUTOCAST.items():
        LIBRARY.impl(name, bound(_cast, device, AUTOCAST_KEYS[device]), key)


for _direction in DIRECTIONS:
    _register(_direction)
