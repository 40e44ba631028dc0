"""Plain tensors, whose calls go past PyTorch's dispatcher: whether nothing else looks on, and the
call that was kept for them, found by one look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from itertools import product
from operator import or_
from threading import Thread
from typing import Any

import torch
from torch import Tensor
from torch._C import _dispatch_keys as _keys_of
from torch._C import _dispatch_tls_local_exclude_set as _excluded
from torch._C import _dispatch_tls_local_include_set as _included
from torch._C import _len_torch_function_stack as _functions_above
from torch._C._autograd import _profiler_enabled
from torch.autograd import forward_ad

from winolab import calls
from winolab.torch.native import Native

AUTOCAST = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
AUTOCAST_KEYS = {
    device: torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    for device, key in AUTOCAST.items()
}
NO_AUTOCAST = reduce(or_, AUTOCAST_KEYS.values())


def casting(*tensors: Tensor, profiled: bool = False) -> frozenset[str] | None:
    """The devices that autocast is on for, where only it and gradients look on, and with
    ``profiled`` PyTorch's profiler; else None."""
    plain = PLAIN["cuda" if tensors[0].is_cuda else "cpu"]
    for each in tensors:
        if type(each) not in TENSORS or _keys_of(each).raw_repr() not in plain:
            return None
    unseen = profiled or not _profiler_enabled()
    if forward_ad._current_level < 0 and not _functions_above() and unseen:
        return CASTING.get((_included().raw_repr(), _excluded().raw_repr()))
    return None


def hashed(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same, lists as tuples, which have a hash."""
    if list not in map(type, arguments):
        return arguments
    return tuple(tuple(v) if type(v) is list else v for v in arguments)


def known(question: tuple[Any, ...], a: Tensor, b: Tensor) -> Any:
    """What computes a result of plain tensors, undifferentiated, where a call was kept for what is
    asked and for tensors that lie like these; else None."""
    try:
        call: Any = calls.kept.get(_key(question, a, b))
    except TypeError:  # an argument without a hash
        return None
    return call and call.quick


def keep(question: tuple[Any, ...], a: Tensor, b: Tensor, call: calls.Recorded) -> None:
    """Let ``known`` find the call."""
    key = _key(question, a, b)
    with suppress(TypeError):
        calls.remember(key, call)
    direction, *found, arguments = question
    operand, shape = found or (-1, ())
    NATIVE.keep(direction, operand, arguments, (shape, key[1:]), call)
    if a.is_cuda:
        NATIVE.begin()


def keep_again(question: tuple[Any, ...], a: Tensor, b: Tensor, other: tuple[Any, ...]) -> None:
    """Let ``known`` find by another question, too, what it finds by the first."""
    with suppress(TypeError, KeyError):
        keep(other, a, b, calls.kept[_key(question, a, b)])


def _key(question: tuple[Any, ...], a: Tensor, b: Tensor) -> tuple[Any, ...]:
    """What is asked, and how the tensors lie: plain ones negate nothing."""
    return (
        question,
        a.shape, a.stride(), a.dtype, a.get_device(), a.data_ptr() % 16,
        b.shape, b.stride(), b.dtype, b.get_device(), b.data_ptr() % 16,
    )  # fmt: skip


def _local() -> tuple[int, int]:
    """Keys that the dispatcher adds and leaves out in this thread, as modes and transforms say."""
    return _included().raw_repr(), _excluded().raw_repr()


def _usual() -> list[tuple[int, int]]:
    """The keys of a thread that nothing was said to, of one in inference mode, and of nodes of
    autograd in both."""
    found: list[tuple[int, int]] = []

    def look() -> None:
        found.append(_local())
        with torch.inference_mode():
            found.append(_local())

    thread = Thread(target=look)
    thread.start()
    thread.join()
    return [*found, *((included, excluded | _names()) for included, excluded in found)]


def _names() -> int:
    """The key of tensors' names, which autograd leaves out in its nodes before PyTorch 2.12, 0
    without one. No node is asked: who has run one may not fork any more."""
    key = torch._C._parse_dispatch_key("Named")
    return 0 if key is None else torch._C.DispatchKeySet(key).raw_repr()


def _keys(device: str) -> Iterator[int]:
    """Keys of a tensor that only gradients and autocast may look on at, made in inference mode or
    not."""
    for names in ((), (f"Autograd{device}", "ADInplaceOrView")):
        every = (device, f"Autocast{device}", *names)
        sets = (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)) for name in every)
        yield reduce(or_, sets).raw_repr()


def _casts_by_keys() -> dict[tuple[int, int], frozenset[str]]:
    """The sets of keys of a thread in which autocast alone is switched on, and for which devices:
    what is off is left out of a call."""
    found = {}
    every = (frozenset(), frozenset({"cpu"}), frozenset({"cuda"}), frozenset(AUTOCAST))
    for (included, excluded), devices in product(_usual(), every):
        on = reduce(or_, (AUTOCAST_KEYS[device].raw_repr() for device in devices), 0)
        found[included, excluded & ~on] = devices
    return found


TENSORS = frozenset({Tensor, torch.nn.Parameter})
CASTING = _casts_by_keys()
PLAIN = {device.lower(): frozenset(_keys(device)) for device in ("CPU", "CUDA")}
NATIVE = Native(
    list(PLAIN["cuda"]),
    {keys: sum(1 << (device == "cuda") for device in on) for keys, on in CASTING.items()},
    "AutogradCUDA",
)
