"""Calls without numbers leave none behind: neither in the model nor beside it."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict, UserDict, deque
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import winolab.torch
from tests.torch.network import tensors

X = tensors((1, 3, 8, 8), dtype=torch.float32)[0]
GRIDS: dict[int, torch.Tensor] = {}


def got(grids: Any, size: int) -> torch.Tensor:
    if size not in grids:
        grids[size] = torch.ones(size)
    return grids[size]


def default(size: int, grids: Any = {}) -> torch.Tensor:  # noqa: B006
    return got(grids, size)


def tabled() -> Any:
    """A function that keeps what it returned."""
    return functools.lru_cache(maxsize=4)(lambda size: (torch.ones(size),))


def enclosed() -> Any:
    found = None

    def grid(size: int) -> torch.Tensor:
        nonlocal found
        if found is None:
            found = torch.ones(size)
        return found

    return grid


class Slotted:
    __slots__ = ("grid",)


def slotted(of: Any, size: int) -> torch.Tensor:
    if not hasattr(of, "grid"):
        of.grid = torch.ones(size)
    return of.grid


def queued(found: Any, size: int) -> torch.Tensor:
    if not found:
        found.append(torch.ones(size))
    return found[-1]


class Gridded(nn.Module):
    """A convolution, and a sum with what is made once: ``own`` keeps it, where anything does."""

    grids: ClassVar[dict[int, torch.Tensor]] = {}
    grid: Any

    def __init__(self, grid: Any, own: Any = None) -> None:
        super().__init__()
        self.layer, self.own = nn.Conv2d(3, 3, 3, padding=1), own
        self.__dict__["grid"] = grid

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.grid(self, x.shape[-1])


def noted() -> Gridded:
    """What a hook notes in a list of its own."""
    model, seen = Gridded(lambda m, size: 0), []
    model.layer.register_forward_hook(lambda *call: seen.append(call[-1].detach()))
    model.layer.register_forward_hook(lambda *call: call[-1] + seen[0].mean())
    return model


KEPT: dict[str, Any] = {
    "a dictionary": lambda: Gridded(lambda m, n: got(m.own, n), {}),
    "one in others": lambda: Gridded(lambda m, n: got(m.own[0]["of"], n), [{"of": {}}]),
    "an ordered one": lambda: Gridded(lambda m, n: got(m.own, n), OrderedDict({1: 2})),
    "a queue": lambda: Gridded(lambda m, n: queued(m.own, n), deque()),
    "an object": lambda: Gridded(lambda m, n: got(m.own.grids, n), SimpleNamespace(grids={})),
    "one with slots": lambda: Gridded(lambda m, n: slotted(m.own, n), Slotted()),
    "another class": lambda: Gridded(lambda m, n: got(m.own, n), UserDict()),
    "a class": lambda: Gridded(lambda m, n: got(type(m).grids, n)),
    "a closure": lambda: Gridded(lambda m, n: m.own(n), enclosed()),
    "a bound argument": lambda: Gridded(lambda m, n: m.own(n), functools.partial(got, {})),
    "a default": lambda: Gridded(lambda m, n: m.own(n), default),
    "a hook": noted,
    "a function's cache": lambda: Gridded(lambda m, n: m.own(n)[0], tabled()),
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_a_call_keeps_has_numbers(kept: str) -> None:
    model = KEPT[kept]().train()
    assert winolab.torch.convert(model, X).layers[0].converted
    assert type(model(X)) is torch.Tensor
    other = KEPT[kept]()
    winolab.torch.convert(other)
    winolab.torch.warmup(other, torch.ones(1, 3, 9, 9), device="h100", workers=1)
    assert type(other(torch.ones(1, 3, 9, 9))) is torch.Tensor


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from winolab.gpu.runtime import nvrtc

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda *how: nvrtc.Compiled(b"", {}))
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))


def test_what_is_not_the_call_s_stays() -> None:
    """Containers stay the same objects, and what they held before is there again."""
    own = {"grids": {4: torch.ones(4)}, "calls": [1]}
    grids, calls = own["grids"], own["calls"]
    held = grids[4]

    def grid(model: Any, size: int) -> torch.Tensor:
        model.own["calls"].append(2)
        model.own["grids"].clear()
        return got(model.own["grids"], size)

    model = Gridded(grid, own)
    winolab.torch.convert(model, X)
    assert model.own is own
    assert own["grids"] is grids
    assert own["calls"] is calls
    assert list(grids) == [4]
    assert grids[4] is held
    assert calls == [1]


class Entries(dict):
    """Its entries are its attributes."""

    def __init__(self, **entries: Any) -> None:
        super().__init__(entries)
        self.__dict__ = self


class Unsure:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("not now")


def test_what_hides_its_class_or_methods_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = weakref.proxy(Unsure())
    own = Entries(items={}, values=gone, update=Unsure(), clear=weakref.proxy(Entries))
    monkeypatch.setitem(globals(), "unsure", Unsure())
    cached = tabled()
    model = Gridded(lambda m, n: got(m.own["items"], n) + cached(n)[0], own)
    winolab.torch.convert(model, X)
    assert not own["items"]
    assert type(model(X)) is torch.Tensor


def test_gradients_of_layers_that_are_no_submodules_stay() -> None:
    hidden = nn.Conv2d(3, 3, 1)
    model = Gridded(lambda m, n: m.own[0](torch.ones(1, 3, n, n)), [hidden]).train()
    winolab.torch.convert(model)
    winolab.torch.warmup(model, X, device="h100", workers=1)
    assert [p.grad for p in hidden.parameters()] == [None, None]


def test_what_cannot_be_taken_back_is_said_before_the_model_changes() -> None:
    model = Gridded(lambda m, n: got(GRIDS, n))
    said = r"^a call .* keeps a tensor of shape \(8,\) outside .*, then convert it without inputs$"
    with pytest.raises(ValueError, match=said):
        winolab.torch.convert(model, X)
    assert type(model.layer) is nn.Conv2d
    GRIDS.clear()
    assert winolab.torch.convert(model).layers[0].converted
    assert type(model(X)) is torch.Tensor


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.detach().numpy(),
        lambda x: np.asarray(x.detach()),
        lambda x: x.tolist(),
        lambda x: f"{x.sum():.3f}",
        lambda x: memoryview(x),
        lambda x: bytes(x.untyped_storage()),
        lambda x: x[x > 0],
        lambda x: x.unique(),
    ],
)
@pytest.mark.filterwarnings("ignore:.*TypedStorage")
def test_a_model_that_reads_numbers_is_told_what_to_do(read: Any) -> None:
    model = Gridded(lambda m, n: read(got(m.own, n)) and 0, {})
    with pytest.raises(ValueError, match=r"^the model .*; convert it without inputs$"):
        winolab.torch.convert(model, X)
    assert type(model.layer) is nn.Conv2d
    assert not model.own


def test_what_the_model_itself_raises_is_passed_on() -> None:
    model = Gridded(lambda m, n: m.own[n], {})
    with pytest.raises(KeyError):
        winolab.torch.convert(model, X)
    with pytest.raises(ValueError, match=r"\(RuntimeError: .*\); convert it without inputs$"):
        winolab.torch.convert(Gridded(lambda m, n: torch.ones(5)), X)
    assert type(model.layer) is nn.Conv2d
