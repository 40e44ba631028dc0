"""What an operator is asked for: integers alone, and inputs of size 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import winolab
import winolab.torch
from tests.torch.network import tensors
from tests.torch.samples import NAMES, ours, theirs
from winolab.torch.asked import asked


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_call_leaves_nothing_for_right_ones(name: str) -> None:
    """1.0 equals 1: what it had asked for was what 1 found from then on."""
    asked.cache_clear()
    shape = (4, 6) if "transpose" in name else (6, 4)
    x, w = tensors((2, 4, *(5,) * int(name[-2])), (*shape, *(2,) * int(name[-2])))
    for groups in (1.0, np.float64(1), "1", None):
        with pytest.raises(TypeError, match=r"^groups is .*; expected an integer$"):
            ours(name)(x, w, groups=groups)
    expected = theirs(name, x, w)
    for groups in (1, np.int64(1)):
        assert ours(name)(x, w, groups=groups).shape == expected.shape
    with pytest.raises(TypeError, match="groups"):
        ours(name)(x, w, groups=1.0)


@pytest.mark.parametrize("place", range(1, 6))
def test_only_integers_are_asked_for(place: int) -> None:
    """Past functions, too, and in lists."""
    right: list[Any] = ["backward_data", (2, 4, 5), (1,), (0, 1), (1,), 1]
    wrong = [*right]
    wrong[place] = 1.0 if place == 5 else tuple(map(float, right[place]))
    asked.cache_clear()
    with pytest.raises(TypeError, match="expected an integer"):
        asked(*wrong)
    geometry = asked(*right).geometry
    sizes = *geometry.stride, *geometry.padding[0], *geometry.dilation, geometry.groups
    assert {*map(type, (*geometry.result_shape, *sizes))} == {int}


HOW: list[dict[str, Any]] = [
    {}, {"algorithm": "winograd:2x2:2x3"}, {"tolerance": 1e-3}, {"batch_invariant": True},
]  # fmt: skip


@pytest.mark.parametrize("how", HOW, ids=str)
def test_an_input_of_size_0_has_pytorch_s_shapes_without_images(how: dict[str, Any]) -> None:
    """The compiled graph and the operator have to agree: what was said to be there was not."""
    (w,) = tensors((4, 2, 2, 3), dtype=torch.float32)

    def convolve(x: Any, w: Any) -> Any:
        return winolab.torch.conv2d(x, w, padding=(3, 1), **how)

    whole = torch.compile(convolve, backend="aot_eager", fullgraph=True)
    shape = theirs("conv2d", torch.ones(0, 2, 0, 5), w, padding=(3, 1)).shape
    assert shape == (0, 4, 5, 5)
    for function in (convolve, whole):
        x, v = torch.ones(0, 2, 0, 5).requires_grad_(), w.clone().requires_grad_()
        y = function(x, v)
        y.sum().backward()
        assert (y.shape, x.grad.shape) == (shape, x.shape)  # pyright: ignore
        assert v.grad.shape == w.shape  # pyright: ignore
        assert not v.grad.any()  # pyright: ignore
        with pytest.raises((ValueError, RuntimeError), match="x has size 0 in spatial dimension 0"):
            function(torch.ones(3, 2, 0, 5), w)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_an_input_of_size_0_is_refused_in_a_line_with_images(device: str) -> None:
    w = torch.ones(1, 2, 2, device=device)
    layer = winolab.torch.Conv1d(2, 1, 2, padding=7, device=device)
    for images, padding, said in (
        (3, 7, "^x has size 0 in spatial dimension 0; expected at least 1, or no images$"),
        (3, 1, "^x has size 0 in spatial dimension 0; expected at least 1, or no images$"),
        (3, 0, "^spatial dimension 0: the filter spans 2 inputs, but .*$"),
        (0, 0, "^spatial dimension 0: the filter spans 2 inputs, but .*$"),
    ):
        x = torch.ones(images, 2, 0, device=device)
        with pytest.raises(ValueError, match=said):
            winolab.torch.conv1d(x, w, padding=padding)
        if padding == 7:
            with pytest.raises(ValueError, match=said):
                layer(x)
    with pytest.raises(ValueError, match=r"^x has size 0 in spatial dimension 0; .* at least 1$"):
        winolab.torch.conv1d(torch.ones(3, 2, 0, device=device), w[..., :1])
    assert layer(torch.ones(0, 2, 0, device=device)).shape == (0, 1, 13)


def test_a_size_that_is_0_only_as_it_runs_is_refused_then() -> None:
    """No size is known as such a graph is made."""
    (w,) = tensors((4, 2, 2), dtype=torch.float32)

    def convolve(x: Any, count: Any) -> Any:
        rows = count.item()
        torch._check(rows >= 0)
        return winolab.torch.conv1d(x[..., :rows], w, padding=7)

    x = torch.ones(3, 2, 6)
    compiled = torch.compile(convolve, backend="aot_eager", dynamic=True)
    assert compiled(x, torch.tensor(4)).shape == (3, 4, 17)
    with pytest.raises(ValueError, match=r"^x has size 0 in spatial dimension 0"):
        compiled(x, torch.tensor(0))


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_winolab_s_own_functions_keep_their_shapes_of_size_0(layout: Any) -> None:
    """With gradients or without: NumPy's arrays and tensors are alike there."""
    x, w = torch.ones(3, 0, 5, 2), torch.ones(4, 2, 3, 2)
    how: dict[str, Any] = {"padding": (3, 1), "layout": layout}
    if layout == "channels_first":
        x, w = x.movedim(-1, 1), w.movedim(-1, 1)
    expected = winolab.conv_forward(x.numpy(), w.numpy(), **how)
    x, w = x.requires_grad_(), w.requires_grad_()
    y = winolab.conv_forward(x, w, activation="relu", **how)
    y.sum().backward()
    assert y.shape == expected.shape
    assert x.grad.shape == x.shape  # pyright: ignore
    assert not w.grad.any()  # pyright: ignore
    dx = winolab.conv_backward_data(y, w, tuple(x.shape), **how)
    dw = winolab.conv_backward_filter(x, y, tuple(w.shape), **how)
    assert (dx.shape, dw.shape, dw.requires_grad) == (x.shape, w.shape, True)
    assert not dw.any()
