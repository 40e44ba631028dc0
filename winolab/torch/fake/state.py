"""What a model holds before a call that is to leave nothing, and how it is put back."""

from __future__ import annotations

import functools
import gc
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import (
    CellType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch
from torch import Tensor, nn

# Python's own modules whose objects hold what others put there.
HOLDERS = {"collections", "functools", "types", "weakref"}
# Whose objects, beside modules of torch, hold nothing that a model put there.
OPAQUE = {*sys.stdlib_module_names, "torch", "numpy", "winolab"} - HOLDERS
ATOMS = frozenset({
    *(int, float, complex, bool, str, bytes, type(None), type(...)),
    *(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format),
})  # fmt: skip
CONTAINERS = dict, list, set, deque
FIXED = tuple, frozenset
CACHE = type(functools.lru_cache(len))
ABSENT = object()
DEPTH = 5  # at most so many containers lie around a tensor that a function keeps


class State:
    """What the model's modules hold, and what that holds: attributes, containers, other objects,
    their classes, functions' closures and defaults, and gradients.
    """

    def __init__(self, model: nn.Module) -> None:
        self._seen: dict[int, Any] = {}  # which keeps them, so that no other has their ids
        self._back: list[Callable[[], None]] = []
        todo: list[Any] = list(model.modules())
        while todo:
            value = todo.pop()
            if type(value) not in ATOMS and id(value) not in self._seen:
                self._seen[id(value)] = value
                todo += self._noted(value)

    def put_back(self) -> None:
        """Make the model hold again what it held; what is the same is not touched."""
        for back in self._back:
            back()

    def _noted(self, value: Any) -> Iterable[Any]:
        """Note how to put it back; what it refers to."""
        if _is(value, Tensor):
            if value.is_leaf and value.requires_grad:
                self._note(_put_back_grad, value, value.grad)
            return self._attributes(value)
        if _is(value, ModuleType | FrameType):
            return ()
        if _is(value, type):
            if _package(value) in OPAQUE:
                return ()
            self._note(_put_back_class, value, dict(vars(value)))
            return (*vars(value).values(), *value.__mro__[1:])
        if _is(value, CellType):
            return self._cell(value)
        if _is(value, FunctionType):
            cells, defaults = value.__closure__ or (), value.__defaults__ or ()
            return (*cells, *defaults, value.__kwdefaults__, *vars(value).values())
        if _is(value, MethodType):
            return value.__self__, value.__func__
        if _is(value, staticmethod | classmethod):
            return (value.__func__,)
        if _is(value, functools.partial):
            return value.func, *value.args, *value.keywords.values()
        if _is(value, CONTAINERS):
            self._note(_put_back, value, _copy(value))
        elif not _is(value, (*FIXED, nn.Module)) and _package(type(value)) in OPAQUE:
            return ()
        return (*_elements(value), *self._attributes(value), *self._slots(value), type(value))

    def _attributes(self, value: Any) -> Iterator[Any]:
        """The dictionary of the object's attributes, where it has one."""
        try:
            own = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            own = None
        if type(own) is dict:
            yield own

    def _slots(self, value: Any) -> Iterator[Any]:
        """What lies in the object's slots."""
        for kind in type(value).__mro__:
            if _package(kind) in OPAQUE | HOLDERS:
                continue
            for slot in vars(kind).values():
                if _is(slot, MemberDescriptorType):
                    held = slot.__get__(value) if _is_set(slot, value) else ABSENT
                    self._note(_put_back_slot, (slot, value), held)
                    yield held

    def _cell(self, cell: CellType) -> Iterable[Any]:
        try:
            contents = cell.cell_contents
        except ValueError:  # it is empty
            return ()
        self._note(_put_back_cell, cell, contents)
        return (contents,)

    def _note(self, back: Callable[[Any, Any], None], value: Any, before: Any) -> None:
        self._back.append(lambda: back(value, before))


def _is(value: Any, kinds: Any) -> bool:
    """Whether its type is one of these: an object may compute its class, and a proxy's is gone."""
    return issubclass(type(value), kinds)


def _package(kind: type) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def _elements(value: Any) -> Iterable[Any]:
    """What a container holds, but for what refers to nothing."""
    kind: Any = type(value)  # an entry may hide a method
    if not issubclass(kind, (*CONTAINERS, *FIXED)):
        return ()
    held = list(kind.values(value) if issubclass(kind, dict) else value)
    return [v for v in held if type(v) not in ATOMS]


def _copy(value: Any) -> Any:
    """What the container holds, in its order."""
    kind: Any = type(value)
    return list(kind.items(value) if issubclass(kind, dict) else value)


def _same(value: Any, before: list[Any]) -> bool:
    """Whether it holds the very same."""
    now = _copy(value)
    if len(now) != len(before):
        return False
    if _is(value, dict):
        pairs = zip(now, before, strict=True)
        return all(k is key and v is was for (k, v), (key, was) in pairs)
    return all(v is was for v, was in zip(now, before, strict=True))


def _put_back(value: Any, before: list[Any]) -> None:
    if _same(value, before):
        return
    if _is(value, list):
        value[:] = before
        return
    kind: Any = type(value)
    kind.clear(value)
    if _is(value, deque):
        value.extend(before)
    else:
        kind.update(value, before)


def empty_caches(tensors: list[Any]) -> None:
    """Empty functions' caches (functools.lru_cache) that hold some of the tensors."""
    wanted = {id(v) for v in tensors}
    for cache in [v for v in gc.get_objects() if type(v) is CACHE]:
        if _leads([cache], wanted):
            cache.cache_clear()


def _leads(values: list[Any], wanted: set[int]) -> bool:
    """Whether one of the values is a tensor that is ``wanted`` or holds one."""
    seen: set[int] = set()
    for _ in range(DEPTH):
        if any(id(v) in wanted for v in values):
            return True
        seen.update(map(id, values))
        inner = gc.get_referents(*(v for v in values if not _is(v, Tensor)))
        opaque = ModuleType, type, FrameType, FunctionType, nn.Module
        values = [v for v in inner if id(v) not in seen and not _is(v, opaque)]
    return False


def _put_back_grad(tensor: Tensor, before: Tensor | None) -> None:
    if tensor.grad is not before:
        tensor.grad = before


def _put_back_cell(cell: CellType, before: Any) -> None:
    cell.cell_contents = before


def _is_set(slot: Any, value: Any) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


def _put_back_slot(of: tuple[Any, Any], before: Any) -> None:
    slot, value = of
    if before is not ABSENT:
        slot.__set__(value, before)
    elif _is_set(slot, value):
        slot.__delete__(value)


def _put_back_class(kind: type, before: dict[str, Any]) -> None:
    for name, value in list(vars(kind).items()):
        if name.startswith("__"):  # Python's own, made when they are asked for
            continue
        if name not in before:
            delattr(kind, name)
        elif value is not before[name]:
            setattr(kind, name, before[name])
