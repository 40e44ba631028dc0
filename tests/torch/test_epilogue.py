"""Bias, residual and activation of torch tensors on the CPU: bits, and gradients of any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import winolab
from winolab.options import ConvOptions

torch = pytest.importorskip("torch")
followed = pytest.importorskip("winolab.torch.graph").followed
SHAPE, FILTER = (2, 4, 5, 6), (7, 4, 3, 3)
HOW: dict[str, Any] = {"padding": 1, "layout": "channels_first"}
ACTIVATIONS = ("relu", "leaky_relu:0.3", "silu")


def tensors(dtype: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(45)
    shapes = SHAPE, FILTER, FILTER[:1], (2, 7, 5, 6)
    return [
        torch.randn(shape, generator=generator, dtype=torch.double).to(dtype) for shape in shapes
    ]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_bits_are_the_same_with_and_without_a_graph(dtype: Any, activation: Any) -> None:
    x, w, bias, residual = tensors(dtype)
    steps: dict[str, Any] = {"bias": bias, "residual": residual, "activation": activation}
    plain = winolab.conv_forward(x, w, **steps, **HOW)
    assert plain.dtype == dtype
    y = winolab.conv_forward(x, w, **HOW)
    options = ConvOptions("channels_first", activation=activation).checked()
    assert torch.equal(followed(y, bias, residual, options), plain)
    if activation == "relu":
        assert torch.equal(plain, torch.relu(y + bias[:, None, None] + residual))


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_gradients_of_all_of_them(activation: Any, layout: Any) -> None:
    x, w, bias, residual = (v.requires_grad_() for v in tensors(torch.double))

    def ours(*given: Any) -> Any:
        x, w, bias, residual = given
        if layout == "channels_last":
            x, w, residual = (v.movedim(1, -1) for v in (x, w, residual))
        how: dict[str, Any] = HOW | {"layout": layout}
        y = winolab.conv_forward(x, w, bias=bias, residual=residual, activation=activation, **how)
        return y.movedim(-1, 1) if layout == "channels_last" else y

    def theirs(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        y = torch.nn.functional.conv2d(x, w, bias, padding=1) + residual
        kind = torch.nn.functional
        return {
            None: lambda y: y,
            "relu": torch.relu,
            "leaky_relu:0.3": lambda y: kind.leaky_relu(y, 0.3),
            "silu": kind.silu,
        }[activation](y)

    given = x, w, bias, residual
    found = []
    for call in (ours, theirs):
        once = torch.autograd.grad((call(*given) ** 2).sum(), given, create_graph=True)
        twice = torch.autograd.grad(sum((g**2).sum() for g in once), given)
        found.append([*once, *twice])
    for got, exact in zip(*found, strict=True):
        assert float(((got - exact).norm() / exact.norm()).detach()) <= 1e-12


def test_what_does_not_fit_is_refused() -> None:
    x, w, bias, residual = tensors(torch.float32)
    for tracked in (False, True):
        w.requires_grad_(tracked)
        with pytest.raises(ValueError, match=r"bias has shape \(6,\); expected \(7,\)"):
            winolab.conv_forward(x, w, bias=bias[1:], **HOW)
        with pytest.raises(TypeError, match="residual has dtype float64 and y float32; convert it"):
            winolab.conv_forward(x, w, residual=residual.double(), **HOW)
    with pytest.raises(TypeError, match="bias is a ndarray; expected a torch tensor"):
        winolab.conv_forward(x, w, bias=np.ones(7, "f"), **HOW)
