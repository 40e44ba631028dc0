"""Each layer of a converted network beside PyTorch's."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import winolab.torch
from tests.torch.network import tensors

X = tensors((2, 3, 12, 12), dtype=torch.float32)[0]


def converted(**how: object) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 3, stride=2),
        nn.MaxPool2d(2),
    ).eval()
    winolab.torch.convert(model, **how)  # pyright: ignore[reportArgumentType]
    return model


def test_errors_and_times_are_measured() -> None:
    model = converted(tolerance=1e-4, precision="bf16")
    parameters = copy.deepcopy(model.state_dict())
    found = winolab.torch.compare(converted(tolerance=1e-6), X, rounds=3)
    assert [layer.name for layer in found.layers] == ["0", "2"]
    assert [layer.input_shape for layer in found.layers] == [(2, 3, 12, 12), (2, 8, 12, 12)]
    for layer in found.layers:
        assert 0 < layer.error < 1e-6
        assert 0 < layer.pytorch_error < 5e-7  # of 27 and 72 products in FP32
        assert min(layer.seconds, layer.pytorch_seconds) > 0
    json.dumps(found.to_dict())
    lines = str(found).splitlines()
    assert len(lines) == 3
    assert "times as fast" in lines[0]
    axes = found.plot()
    assert axes.get_xlabel() == "µs a call"
    assert len(axes.collections) == 2
    assert [tuple(c.get_offsets().shape) for c in axes.collections] == [(2, 2)] * 2
    assert all(torch.equal(v, parameters[k]) for k, v in model.state_dict().items())


def test_errors_are_those_of_the_layer_s_own_input() -> None:
    """FP64 of the same operands: errors of a first layer do not count for the second."""
    model = converted()
    found = winolab.torch.compare(model, X, rounds=1)
    model.requires_grad_(False)
    inner = model[1](model[0](X))
    y = nn.ConvTranspose2d(8, 4, 3, stride=2).requires_grad_(False)
    y.load_state_dict(model[2].state_dict())
    exact = y.double()(inner.double())
    error = float((model[2](inner).double() - exact).norm() / exact.norm())
    assert found.layers[1].error == pytest.approx(error, rel=1e-6)


def test_autocast_s_inputs_are_compared() -> None:
    model = converted()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = winolab.torch.compare(model, X, rounds=1)
    for layer in found.layers:
        assert 1e-4 < layer.error < 2.0**-8  # one rounding to 8 bits


def test_a_mode_and_hooks_stay() -> None:
    model = converted()
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    winolab.torch.compare(model, X, rounds=1)
    assert seen == [1]
    assert not model.training
    model(X)
    assert seen == [1, 1]


def test_wrong_arguments_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^the model has no layer of winolab; convert it first$"):
        winolab.torch.compare(nn.Conv2d(3, 3, 3), X)
    with pytest.raises(ValueError, match=r"^rounds is 0; expected 1 or more$"):
        winolab.torch.compare(converted(), X, rounds=0)
    for rounds, shown in ((1.5, "1.5"), ("1", "'1'"), (None, "None")):
        with pytest.raises(TypeError, match=f"^rounds is {shown}; expected an integer$"):
            winolab.torch.compare(converted(), X, rounds=rounds)  # pyright: ignore[reportArgumentType]
    for model, shown in (([], "a list"), (nn.ReLU, "a type")):
        with pytest.raises(TypeError, match=f"^model is {shown}; expected a torch.nn.Module$"):
            winolab.torch.compare(model, X)  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("kind", [winolab.torch.Conv2d, winolab.torch.ConvTranspose2d])
def test_complex_layers_are_compared(kind: Any, dtype: torch.dtype) -> None:
    layer = kind(3, 4, 3, dtype=dtype)
    x = torch.complex(X, X.flip(0)).to(dtype)
    (found,) = winolab.torch.compare(layer, x, rounds=1).layers
    name = "conv2d" if kind is winolab.torch.Conv2d else "conv_transpose2d"
    theirs: Any = getattr(nn.functional, name)
    wide = [v.detach().to(torch.complex128) for v in (x, layer.weight, layer.bias)]
    exact, sizes = theirs(*wide), theirs(*(v.abs() for v in wide))
    # A part is two sums of 27 products, their difference and the bias; "exact" has as many in FP64.
    most = 2 * 2**0.5 * 29 * torch.finfo(dtype).eps / 2 * float(sizes.norm() / exact.norm())
    assert max(found.error, found.pytorch_error) <= most
    if dtype == torch.complex64:
        error = float((layer(x).detach() - exact).norm() / exact.norm())
        assert found.error == pytest.approx(error, rel=1e-5)


@pytest.mark.parametrize("inside", [False, True], ids=["around", "in the model"])
def test_under_autocast_what_is_said_is_of_what_it_casts_to(inside: bool) -> None:
    """``compare`` measured 20,000 times the error that was told of float32."""

    def casting(here: bool) -> Any:
        return torch.autocast("cpu", torch.bfloat16) if here else nullcontext()

    class Casting(nn.Sequential):
        def forward(self, x: Any) -> Any:
            with casting(inside):
                return super().forward(x)

    def told(x: Any = X, **how: Any) -> Any:
        with casting(not inside):
            return winolab.torch.convert(model, x, **how).layers[0]

    model = Casting(nn.Conv2d(3, 8, 3, padding=1)).eval()
    tight = told(tolerance=1e-5)
    assert not tight.converted
    assert "the least that can be had in bf16" in tight.why
    if not inside:  # else nothing tells without inputs
        assert told(None, tolerance=1e-5) == replace(tight, input_shape=None)
    (on_a_gpu,) = told(device="h100").predicted
    assert on_a_gpu.algorithm.endswith("bf16")
    for how in ({}, {"tolerance": 1e-2}):
        (first,) = told(**how).predicted
        with casting(not inside):
            (found,) = winolab.torch.compare(model, X, rounds=1).layers
        assert first.relative_rms / 3 < found.error < 3 * first.relative_rms
        assert found.error > 3e-4
    wide = model.double()
    with torch.autocast("cpu", torch.bfloat16):  # which leaves float64 alone
        (first,) = winolab.torch.convert(wide, X.double()).layers[0].predicted
    assert first.relative_rms < 1e-14
