"""Filters that are kept, by a runtime that counts what it transforms in a GPU's place."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import winolab.torch
from tests.torch.network import tensors
from tests.torch.samples import check, exact_and_bound
from winolab.torch import kept, operators
from winolab.torch.kept import SHAPES, KeptFilters


class Held:
    """A filter as a GPU would hold it: here a copy of what it was."""

    nbytes, number = 64, -1

    def __init__(self, w: Any) -> None:
        self.w = w.clone()


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A layer in evaluation whose filters a runtime keeps; ``made`` has what was transformed."""
    made: list[Held] = []

    def transformed(question: Any, a: Any, w: Any) -> Any:
        made.append(Held(w))
        return made[-1]

    def run(question: Any, a: Any, held: Held, w: Any) -> Any:
        rest = question.geometry
        ends = [end for pair in rest.padding for end in pair]
        return operators.forward(a, held.w, rest.stride, ends, rest.dilation, rest.groups)

    monkeypatch.setattr(kept, "serves", lambda a, w: not torch.is_grad_enabled())
    monkeypatch.setattr(kept, "transformed", transformed)
    monkeypatch.setattr(kept, "run", run)
    module: Any = winolab.torch.Conv2d(4, 6, 3).eval()
    module.made = made
    return module


def x(*shape: int) -> Any:
    return tensors(shape or (2, 4, 8, 8), dtype=torch.float32)[0]


def test_a_filter_is_transformed_once(layer: Any) -> None:
    with torch.no_grad():
        first = layer(x())
        assert torch.equal(layer(x()), first)
    assert len(layer.made) == 1
    assert layer.kept.nbytes == 64
    assert torch.equal(first, layer(x()))  # which differentiates: the operator's own


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.weight.add_(1),
        lambda layer: layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()}),
        lambda layer: setattr(layer, "weight", torch.nn.Parameter(layer.weight + 1)),
        lambda layer: (layer.weight.data.add_(1), layer.train(), layer.eval()),
        lambda layer: (layer.weight.data.add_(1), layer.kept.forget()),
        lambda layer: (layer.weight.data.add_(1), layer.to("cpu")),
    ],
    ids=["written", "loaded", "replaced", "trained", "forgotten", "moved"],
)
def test_a_changed_weight_is_transformed_again(layer: Any, change: Any) -> None:
    with torch.no_grad():
        layer(x())
        change(layer)
        given = x(), layer.weight, layer.bias
        check(layer(x()), *exact_and_bound("conv2d", *given), torch.float32)
    assert len(layer.made) == 2
    assert layer.kept.nbytes == 64


def test_a_weight_in_the_memory_of_one_that_is_gone_is_transformed_again(layer: Any) -> None:
    """Tensors of functional_call: the next has the address and the version of the last."""
    memory = np.zeros((6, 4, 3, 3), np.float32)
    with torch.no_grad():
        for value in (1.0, 2.0):
            memory[...] = value
            given = {"weight": torch.from_numpy(memory)}
            y = torch.func.functional_call(layer, given, x())
            expected = exact_and_bound("conv2d", x(), given["weight"], layer.bias)
            check(y, *expected, torch.float32)
    assert len(layer.made) == 2


def test_training_keeps_nothing(layer: Any) -> None:
    layer.train()
    with torch.no_grad():
        layer(x())
    assert (layer.made, layer.kept.nbytes) == ([], 0)


def test_so_many_shapes_are_kept(layer: Any) -> None:
    with torch.no_grad():
        for size in range(5, 5 + SHAPES + 1):
            layer(x(1, 4, size, size))
        assert len(layer.made) == SHAPES + 1
        assert layer.kept.nbytes == 64 * SHAPES
        layer(x(1, 4, 6, 6))
        assert len(layer.made) == SHAPES + 1
        layer(x(1, 4, 5, 5))  # made room
        assert len(layer.made) == SHAPES + 2


def test_a_filter_that_is_made_while_another_weight_is_asked_for_is_not_the_other_s(
    layer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of torch.nn.DataParallel have copies of a module, which share what is kept."""
    image, other = torch.ones(1, 4, 5, 5), copy.copy(layer)
    other._parameters = {k: nn.Parameter(2 * v) for k, v in layer.named_parameters()}
    assert other.kept is layer.kept
    made = kept.transformed

    def slowly(question: Any, a: Any, w: Any) -> Any:
        monkeypatch.setattr(kept, "transformed", made)
        other(image)  # meanwhile, by another thread
        return made(question, a, w)

    monkeypatch.setattr(kept, "transformed", slowly)
    with torch.no_grad():
        first, second, exact = layer(image), other(image), layer.train()(image)
    assert torch.equal(first, exact)
    assert torch.equal(second, other.train()(image))


def test_what_is_forgotten_meanwhile_is_made(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kept.transformed

    def forgotten(question: Any, a: Any, w: Any) -> Any:
        found = made(question, a, w)
        layer.kept.forget()
        return found

    monkeypatch.setattr(kept, "transformed", forgotten)
    with torch.no_grad():
        for size in range(5, 6 + SHAPES):
            layer(torch.ones(1, 4, size, 5))
    assert layer.kept.nbytes == 0


def test_on_the_cpu_nothing_is_kept() -> None:
    held = KeptFilters()
    a, w = tensors((1, 4, 6, 6), (6, 4, 3, 3))
    with torch.no_grad():
        y = held.convolve("forward", a, w, [1, 1], [0] * 4, [1, 1], 1)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(a, w))
    assert held.nbytes == 0


def test_autocast_s_filter_is_cast_once_where_none_is_transformed(
    layer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "transformed", lambda question, a, w: None)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        first = layer(x())
        (cast,) = layer.kept._kept[-1].values()
        assert (cast.dtype, layer.kept.nbytes) == (torch.bfloat16, 2 * layer.weight.numel())
        assert torch.equal(layer(x()), first)
        assert next(iter(layer.kept._kept[-1].values())) is cast
        layer.weight.zero_()
        assert torch.equal(layer(x()), layer.bias.bfloat16().view(1, 6, 1, 1).expand(first.shape))
    with torch.no_grad():
        assert layer(x()).dtype == torch.float32
    assert layer.kept._kept[-1] == {next(iter(layer.kept._kept[-1])): None}
