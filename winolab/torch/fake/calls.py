"""A model called with tensors that have shapes alone: nothing is computed, and nothing stays."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.nn.parameter import is_lazy

from winolab.torch.fake.state import State, empty_caches


class Fakes:
    """What makes tensors without numbers, and knows which of them are still there."""

    def __init__(self) -> None:
        self.mode: Any = FakeTensorMode(allow_non_fake_inputs=True)

    def __call__(self, inputs: Any) -> list[Any]:
        """A call's arguments, of a tensor or several."""
        return list(map(self.of, inputs if isinstance(inputs, tuple | list) else (inputs,)))

    def of(self, value: Any) -> Any:
        return self.mode.from_tensor(value) if isinstance(value, Tensor) else value

    def end(self) -> Any:
        """Make no more. Returns the mode, None where nobody refers to it, as its tensors do."""
        mode, self.mode = weakref.ref(self.mode), None
        return mode()


@contextmanager
def without_numbers(model: nn.Module, instead: str) -> Iterator[Fakes]:
    """The model with tensors that have shapes alone, so that calls compute nothing; yields what
    makes a call's arguments such ones.

    What calls set on modules and in what modules refer to is taken back, and functions' caches that
    hold such tensors are emptied, autocast's in any case. Raises ValueError for lazy layers, for a
    model that reads numbers or cannot be called, and where tensors without numbers would stay; the
    message says what to do ``instead``. The caller keeps none of them.
    """
    if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        raise ValueError("the model has lazy layers without weights; call it once before")
    fakes, state = Fakes(), State(model)
    try:
        for module in model.modules():
            for kind in ("_parameters", "_buffers"):
                own = getattr(module, kind).items()
                module.__dict__[kind] = {name: fakes.of(tensor) for name, tensor in own}
        with fakes.mode:
            yield fakes
    except BaseException as error:
        torch.clear_autocast_cache()
        state.put_back()
        empty_caches(_alive(fakes.mode))
        if said := _said(error):
            raise ValueError(f"{said}; {instead}") from None
        raise
    torch.clear_autocast_cache()  # of weights as autocast cast them
    state.put_back()
    if (mode := fakes.end()) and (left := _alive(mode)):
        empty_caches(left)
        del left
        if left := _alive(mode, collected=True):
            shape = tuple(left[0].shape)
            raise ValueError(
                f"a call of the model keeps a tensor of shape {shape} outside the model, now one "
                f"without numbers: empty what keeps it, such as a cache, then {instead}"
            )


def _alive(mode: Any, collected: bool = False) -> list[Any]:
    """The mode's tensors that something refers to; ``collected``: not themselves alone."""
    found = [v for v in gc.get_objects() if type(v) is FakeTensor and v.fake_mode is mode]
    if found and collected:
        found.clear()
        gc.collect()
        return _alive(mode)
    return found


def _said(error: BaseException) -> str | None:
    """Why a call without numbers failed, in a line; None for what the model itself raises."""
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return f"the model reads numbers ({error.func}), which are not computed here"
    if isinstance(error, RuntimeError) or "FakeTensor" in str(error):
        first = (str(error).splitlines() or [""])[0].strip().rstrip(".")
        return f"the model cannot be called without numbers ({type(error).__name__}: {first})"
    return None
