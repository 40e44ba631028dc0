"""Filters of modules in evaluation, transformed once on a GPU and kept until they change."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (  # pyright: ignore[reportMissingModuleSource, reportMissingImports]
    is_functorch_wrapped_tensor,
)

from winolab.calls import recall
from winolab.problem import Direction
from winolab.torch import operators
from winolab.torch.asked import Asked

SHAPES = 8  # of inputs for which a module keeps its filter; the oldest makes room


class KeptFilters:
    """The transformed filters of a module, by the shapes of its inputs.

    What is kept belongs to a tensor at its version: writing to the tensor, moving it or putting
    another in its place makes it forgotten. Writes through ``tensor.data`` count no version:
    ``forget``, or a module's train(), is for those. A copy of a module keeps nothing.
    """

    def __init__(self) -> None:
        self._of: tuple[Any, ...] | None = None
        self._tensor: Any = None  # a weak reference: memory that is freed is another's soon
        # None: the kernel reads the filter as it is; a tensor: as autocast casts it
        self._held: dict[Any, Any] = {}

    def __deepcopy__(self, memo: Any) -> KeptFilters:
        return KeptFilters()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptFilters, ()

    @property
    def nbytes(self) -> int:
        """Device memory that is held, beside the filters themselves."""
        return sum(held.nbytes for held in self._held.values() if held is not None)

    def forget(self) -> None:
        """Give the memory back."""
        self._of = None
        self._held.clear()

    def convolve(self, direction: Direction, a: Tensor, w: Tensor, *arguments: Any) -> Tensor:
        """The operator of ``direction``, by the kept filter where one serves."""
        operator = operators.CALLS[direction]
        if not serves(a, w):
            return operator(a, w, *arguments)
        dtype = w.dtype
        if torch.is_autocast_enabled(a.device.type):
            dtype = torch.get_autocast_dtype(a.device.type)
            a = a.to(dtype)
        question = operators.asked_by(direction, arguments)
        if not operators.compiled(question, a, w):
            return operator(a, w, *arguments)
        held = self._found(question, a, w, dtype)
        if held is None:
            return operator(a, w, *arguments)
        if isinstance(held, Tensor):
            return operator(a, held, *arguments)
        return run(question, a, held, w)

    def _found(self, question: Asked, a: Tensor, w: Tensor, dtype: torch.dtype) -> Any:
        """The filter of that dtype for inputs like a, transformed now or before, or as autocast
        casts it where the kernel reads filters as they are; None where it reads this one."""
        of = (w.data_ptr(), w._version, tuple(w.shape), w.stride(), dtype, w.device)
        if self._of != of or self._tensor() is not w:
            self._held.clear()
            self._of, self._tensor = of, weakref.ref(w)
        key = (question, tuple(a.shape), a.dtype)
        if key not in self._held:
            if a.dtype != dtype or (a.is_cuda and torch.cuda.is_current_stream_capturing()):
                return None  # the operator refuses it, or its transform belongs into the graph
            cast = w.detach().to(dtype)
            found = transformed(question, a, cast)
            if found is None and dtype != w.dtype:
                found = cast
            if len(self._held) == SHAPES:
                self._held.pop(next(iter(self._held)))
            self._held[key] = found
        return self._held[key]


def transformed(question: Asked, a: Tensor, w: Tensor) -> Any:
    """w for inputs like a in device memory, None where the kernel reads it as it is."""
    from winolab.gpu.runtime import conv as kernels

    problem = question.problem(tuple(a.shape), tuple(w.shape))
    return kernels.transform_if_used(question.direction, problem, w, question.options)


def run(question: Asked, a: Tensor, held: Any, w: Tensor) -> Tensor:
    """The result by a filter that ``transformed`` made of w."""
    known = recall(question, a, held, None)
    if known:
        return known.run(a, held, None)
    from winolab.gpu.runtime import conv as kernels

    problem = question.problem(tuple(a.shape), tuple(w.shape))
    return kernels.convolve(question.direction, problem, a, held, question.options, None, question)


def serves(a: Tensor, w: Tensor) -> bool:
    """Whether a kept filter may stand for w: nothing differentiates, traces or batches the call."""
    return (
        a.device.type == "cuda"
        and w.device == a.device
        and not (torch.is_grad_enabled() and (a.requires_grad or w.requires_grad))
        and not any(is_functorch_wrapped_tensor(v) for v in (a, w))
        and not w.is_inference()  # has no version
        and all(type(v) in (Tensor, torch.nn.Parameter) for v in (a, w))
    )
