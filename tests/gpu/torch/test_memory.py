"""Calls of PyTorch whose workspace does not fit into memory: CPU tensors are taken for a GPU's, of
which more than there is room for is not to be had."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.torch.network import tensors  # noqa: E402
from winolab.gpu.runtime import arrays, smaller  # noqa: E402
from winolab.torch import kept  # noqa: E402

BY_PYTHON = pytest.mark.parametrize("prepared", ["Python"], indirect=True)
X, W = (3, 32, 8, 12), (32, 32, 5, 5)
HOW: dict[str, Any] = {"padding": 2, "precision": "fp32_ffma"}


class Room:
    """Bytes that are to be had at once as workspace, and what was asked; more is refused where
    ``when`` says so of the size."""

    def __init__(self) -> None:
        self.most: float = math.inf
        self.asked: list[int] = []
        self.refused: list[int] = []
        self.when: Callable[[int], bool] = lambda size: True


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, prepared: Any) -> Room:
    made, memory, empty = Room(), arrays.Torch.memory, arrays.Torch.empty

    def check(size: int) -> None:
        made.asked.append(size)
        if size > made.most and made.when(size):
            made.refused.append(size)
            raise MemoryError(f"no device memory for {size} B")

    def given(library: Any, size: int, index: int) -> Any:
        check(size)
        return memory(library, size, index)

    def new(library: Any, shape: Any, dtype: str, index: int) -> Any:
        if dtype == "uint8":
            check(shape[0])
        return empty(library, shape, dtype, index)

    monkeypatch.setattr(arrays.Torch, "memory", given)
    monkeypatch.setattr(arrays.Torch, "empty", new)
    monkeypatch.setattr(arrays.Torch, "capturing", lambda library, index: False)
    return made


def operands() -> tuple[Any, Any]:
    return tuple(v.detach() for v in tensors(X, W, dtype=torch.float32))


def due(x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(x, w, padding=2)


def agree(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-3)


@BY_PYTHON
def test_results_and_gradients_are_had_in_less(room: Room, prepared: Any) -> None:
    x, w = (v.requires_grad_() for v in operands())
    y = winolab.torch.conv2d(x, w, **HOW)
    wanted = max(room.asked)
    room.most = wanted - 1
    for _ in range(3):
        y = winolab.torch.conv2d(x, w, **HOW)
        agree(y, due(x, w))
        got = torch.autograd.grad(y.sum(), (x, w))
        for mine, right in zip(got, torch.autograd.grad(due(x, w).sum(), (x, w)), strict=True):
            agree(mine, right)
    assert len(room.refused) == len(set(room.refused)) <= 2  # y, and dx as well


@BY_PYTHON
@pytest.mark.parametrize(("evaluated", "enough"), [(False, True), (True, True), (False, False)])
def test_all_images_of_a_batch_have_one_plan(
    room: Room, prepared: Any, monkeypatch: pytest.MonkeyPatch, evaluated: bool, enough: bool
) -> None:
    """Where memory lacks for the workspace of all, the half of them has the same; where it lacks
    for one image, all are planned with less."""
    monkeypatch.setattr(kept, "serves", lambda a, w: evaluated)
    x, w = operands()
    layer = winolab.torch.Conv2d(32, 32, 5, bias=False, batch_invariant=True, **HOW)
    layer.weight = torch.nn.Parameter(w)
    layer.train(not evaluated)
    with torch.no_grad():
        first = layer(x)
        wanted = room.asked[-1]
        assert torch.equal(layer(x[:1]), first[:1])
        of_one = room.asked[-1]
        assert of_one < wanted
        room.most = 0
        room.when = lambda size: size == wanted if enough else size >= of_one
        y = layer(x)
        assert room.refused[0] == wanted
        agree(y, due(x, w))
        assert torch.equal(y, first) == enough
        for i in range(len(x)):
            assert torch.equal(layer(x[i : i + 1]), y[i : i + 1])
        assert torch.equal(layer(x), y)


@BY_PYTHON
def test_a_kept_filter_makes_room(
    room: Room, prepared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where what its kernel takes beside it, here copies, is not to be had: w itself serves."""
    monkeypatch.setattr(kept, "serves", lambda a, w: not torch.is_grad_enabled())
    x, w = operands()
    layer = winolab.torch.Conv2d(32, 32, 5, bias=False, **HOW).eval()
    layer.weight = torch.nn.Parameter(w)
    with torch.no_grad():
        layer(x)
        assert layer.kept.nbytes
        beside = room.asked[-1]
        room.most, room.when = beside - 1, lambda size: size == beside
        for _ in range(3):
            agree(layer(x), due(x, w))
        assert not layer.kept.nbytes
        assert room.refused == [beside]


@BY_PYTHON
def test_a_filter_that_cannot_be_kept_is_read(
    room: Room, prepared: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(kept, "serves", lambda a, w: not torch.is_grad_enabled())
    x, w = operands()
    layer = winolab.torch.Conv2d(32, 32, 5, bias=False, **HOW).eval()
    layer.weight = torch.nn.Parameter(w)
    room.most, room.when = 0, lambda size: len(room.asked) == 1
    with torch.no_grad():
        for _ in range(3):
            agree(layer(x), due(x, w))
    assert len(room.refused) == 1
    assert not layer.kept.nbytes
    assert "filters of forward are transformed by every call: no device memory for" in caplog.text
    assert not smaller._limits
