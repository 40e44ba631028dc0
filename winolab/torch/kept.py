"""Filters of modules in evaluation, transformed once on a GPU and kept until they change."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.multiprocessing.reductions import StorageWeakRef

from winolab import calls
from winolab.gpu.runtime.smaller import NoWorkspace, changed
from winolab.problem import Direction
from winolab.torch import operators, plain
from winolab.torch.asked import NUMBERS, Asked, as_fresh, invariant

SHAPES = 8  # of inputs for which a module keeps its filter; the oldest makes room


class KeptFilters:
    """The transformed filters of a module, by the shapes and memory orders of its inputs.

    What is kept belongs to a tensor at its version: writing to the tensor, moving it or putting
    another in its place makes it forgotten. Writes through ``tensor.data`` count no version:
    ``forget``, or a module's train(), is for those. A copy of a module keeps nothing.
    """

    def __init__(self) -> None:
        self.forget()

    def __deepcopy__(self, memo: Any) -> KeptFilters:
        return KeptFilters()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptFilters, ()

    @property
    def nbytes(self) -> int:
        """Device memory that is held, beside the filters themselves."""
        return sum(held.nbytes for held in list(self._kept[-1].values()) if held is not None)

    def forget(self) -> None:
        """Give the memory back."""
        # Whose filters they are, weak references to it and to its data, as memory that is freed is
        # another's soon, and the filters. None: the kernel reads the filter as it is; a tensor: as
        # autocast casts it. All change at once: replicas of a module share this, in threads, for
        # their weights.
        self._kept: tuple[Any, Any, Any, dict[Any, Any]] = (None, None, None, {})
        self.native: Any = None  # the same for calls past Python

    def convolve(
        self, direction: Direction, a: Tensor, w: Tensor, *arguments: Any, asked: bool = False
    ) -> Tensor:
        """The operator of ``direction``, by the kept filter where one serves; ``asked``: the native
        module does not know it."""
        arguments = plain.hashed(arguments)
        if (call := plain.NATIVE.call) and not asked:
            y = call(NUMBERS[direction], arguments, a, w, self.native or False)
            if y is not None:
                return y
        casting = plain.casting(a, w, profiled=True)
        if casting is None or not serves(a, w):
            # Where gradients are recorded filters did not count: all of it was asked.
            recorded = (a.requires_grad or w.requires_grad) and operators.records()
            by = operators.UNKNOWN if recorded else operators.CALLS
            return by[direction](a, w, *arguments)
        dtype, device = w.dtype, "cuda" if a.is_cuda else "cpu"
        if device in casting:
            if not (operators.casts(a, device) and operators.casts(w, device)):
                return operators.CALLS[direction](a, w, *arguments)
            dtype = torch.get_autocast_dtype(device)
            a = a if a.dtype == dtype else a.to(dtype)
        if invariant(direction, arguments):
            question = operators.asked_by(direction, arguments)
            a = as_fresh(question, a)
            images, _ = operators.how(question, a, w, dtype)
            if images < len(a):
                return operators.in_parts(
                    direction, lambda a, *more: self.convolve(direction, a, w, *more), a,
                    arguments, images,
                )  # fmt: skip
        held = self._found(direction, arguments, a, w, dtype)
        if held is None and a.dtype != w.dtype:
            return operators.CALLS[direction](a, w, *arguments)
        found: Any = w if held is None else held
        try:
            if _profiler_enabled():  # which sees no operator here
                with record_function(f"winolab::conv_{direction}"):
                    return self._run(direction, arguments, a, w, dtype, found)
            return self._run(direction, arguments, a, w, dtype, found)
        except NoWorkspace:  # beside the filter that is kept, which goes
            if found is w:
                raise
            self._kept[-1][_key(direction, arguments, a)] = self.native = held = found = None
            changed()
        return operators.CALLS[direction](a, w, *arguments)

    def _run(
        self, direction: Direction, arguments: tuple[Any, ...], a: Tensor, w: Tensor,
        dtype: torch.dtype, found: Any,
    ) -> Tensor:  # fmt: skip
        """The result by ``found``, which stands for w. Raises NoWorkspace where the workspace that
        its kernel takes is not to be had."""
        self.native = plain.NATIVE.hold(self.native, direction, arguments, a, w, dtype, found)
        if isinstance(found, Tensor):
            return operators.directly(direction, arguments, a, found)
        lies = a.shape, a.stride(), a.dtype, a.get_device(), a.data_ptr() % 16
        key = direction, arguments, found.number, *lies
        call: Any = calls.kept.get(key)
        if call and call.quick:
            return call.quick(a, found)
        question = operators.asked_by(direction, arguments)
        if known := calls.recall(question, a, found, None):
            calls.remember(key, known)
            plain.NATIVE.keep(direction, 2, arguments, (found.number, lies), known)
        return run(question, a, found, w)

    def _found(
        self, direction: str, arguments: tuple[Any, ...], a: Tensor, w: Tensor, dtype: torch.dtype
    ) -> Any:
        """The filter of that dtype for inputs like a, transformed now or before, or as autocast
        casts it where the kernel reads filters as they are; None where it reads this one, or where
        none is to be kept."""
        of = (w.data_ptr(), w._version, w.shape, w.stride(), dtype, w.get_device())
        belongs, tensor, data, filters = self._kept
        if belongs != of or tensor() is not w or data.expired():
            filters: dict[Any, Any] = {}
            data = StorageWeakRef(w.untyped_storage())
            self._kept, self.native = (of, weakref.ref(w), data, filters), None
        key = _key(direction, arguments, a)
        found: Any = filters.get(key, filters)
        if found is not filters:
            return found
        question = operators.asked_by(direction, arguments)
        if a.dtype != dtype or (a.is_cuda and torch.cuda.is_current_stream_capturing()):
            return None  # the operator refuses it, or its transform belongs into the graph
        if not operators.compiled(question, a, w, dtype):
            return None
        cast = w.detach().to(dtype)
        found = transformed(question, a, cast)
        if found is None and dtype != w.dtype:
            found = cast
        if len(filters) >= SHAPES:
            filters.pop(next(iter(tuple(filters))), None)
            self.native = None
        filters[key] = found
        return found


def _key(direction: str, arguments: tuple[Any, ...], a: Tensor) -> tuple[Any, ...]:
    """Inputs whose filters are kept as one: of the same shape, dtype and memory order."""
    return direction, arguments, a.shape, a.dtype, a.stride()[1:2] == (1,)


def transformed(question: Asked, a: Tensor, w: Tensor) -> Any:
    """w for inputs like a in device memory, None where the kernel reads it as it is."""
    from winolab.gpu.runtime import conv as kernels

    problem = question.problem(tuple(a.shape), tuple(w.shape))
    _, options = operators.how(question, a, w)
    return kernels.transform_if_used(question.direction, problem, w, options, a)


def run(question: Asked, a: Tensor, held: Any, w: Tensor) -> Tensor:
    """The result by a filter that ``transformed`` made of w."""
    known = calls.recall(question, a, held, None)
    if known:
        return known.run(a, held, None)
    from winolab.gpu.runtime import conv as kernels

    problem = question.problem(tuple(a.shape), tuple(w.shape))
    _, options = operators.how(question, a, w, a.dtype)
    return kernels.convolve(question.direction, problem, a, held, options, None, question)


def serves(a: Tensor, w: Tensor) -> bool:
    """Whether a kept filter may stand for w, of plain tensors: they are on a GPU, and nothing
    differentiates the call."""
    return (
        a.is_cuda
        and w.get_device() == a.get_device()
        and not ((a.requires_grad or w.requires_grad) and operators.records())
        and not w.is_inference()  # has no version
    )
