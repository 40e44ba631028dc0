"""A network put on winolab in place, and what became of every layer."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
import torch
from torch import nn

import winolab.torch
from tests.torch.network import tensors
from tests.torch.samples import relative_bound

X = tensors((2, 3, 16, 16), dtype=torch.float32)[0]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(8, 8, 3, stride=2), nn.Conv2d(8, 8, 1)),
        nn.ConvTranspose2d(8, 8, 3, stride=2, output_padding=1),
    )


@pytest.mark.parametrize("inputs", [None, X, (X,)], ids=["without", "a tensor", "a tuple"])
@pytest.mark.parametrize("training", [False, True])
def test_every_convolution_is_replaced_in_place(inputs: Any, training: bool) -> None:
    model = network().train(training)
    reference = copy.deepcopy(model)
    parameters, modules = list(model.parameters()), list(model.modules())
    done = winolab.torch.convert(model, inputs)
    assert [layer.name for layer in done.layers] == ["0", "3.0", "3.1", "4"]
    assert all(layer.converted and not layer.why for layer in done.layers)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(a is b for a, b in zip(modules, model.modules(), strict=True))
    assert isinstance(model[0], winolab.torch.Conv2d)
    assert isinstance(model[4], winolab.torch.ConvTranspose2d)
    assert model.state_dict().keys() == reference.state_dict().keys()
    # what was only asked for its shapes has computed nothing: statistics are as they were
    assert torch.equal(model.state_dict()["1.running_mean"], torch.zeros(8))
    torch.testing.assert_close(model(X), reference(X))
    model(X).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_shapes_errors_and_times_are_told() -> None:
    model = network().train()
    done = winolab.torch.convert(model, X, device="h100", tolerance=1e-5)
    shapes = [layer.input_shape for layer in done.layers]
    assert shapes == [(2, 3, 16, 16), (2, 8, 16, 16), (2, 8, 7, 7), (2, 8, 7, 7)]
    for layer in done.layers:
        told = [p.direction for p in layer.predicted]
        assert told == ["forward", "backward_data", "backward_filter"]
        for p in layer.predicted:
            assert p.relative_rms < 1e-5
            assert p.seconds is not None
            assert 1e-6 < p.seconds < 1e-3
    on_cpu = winolab.torch.convert(model.eval(), X, tolerance=1e-6)
    assert [p.direction for p in on_cpu.layers[0].predicted] == ["forward"]
    (first,) = on_cpu.layers[0].predicted
    assert first.seconds is None
    assert first.algorithm != "direct"
    exact: Any = copy.deepcopy(model[0]).double()
    exact.tolerance = None
    y = exact(X.double()).detach()
    error = float((model[0](X).detach().double() - y).norm() / y.norm())
    assert first.relative_rms / 3 < error < 1e-6
    json.dumps(done.to_dict())


def test_what_does_not_serve_a_layer_leaves_it_as_it_was() -> None:
    class Own(nn.Conv2d):
        pass

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 8, 3, stride=2),
        Own(8, 8, 1),
        nn.LazyConv2d(8, 3),
        nn.Conv2d(8, 8, 3, dtype=torch.complex64),
    )
    done = winolab.torch.convert(model, algorithm="winograd:2x2:3x3")
    assert [layer.converted for layer in done.layers] == [True, False, False, False, False]
    assert type(model[1]) is nn.Conv2d
    assert "kept" not in model[1].__dict__
    whys = [layer.why for layer in done.layers[1:]]
    for why, said in zip(
        whys, ("stride 1", "not torch.nn's own", "no weight yet", "complex64"), strict=True
    ):
        assert said in why
        assert "\n" not in why
    text = str(done)
    assert text.startswith("1 of 5 convolutions is winolab's")
    assert all(why in text for why in whys)
    # a converted layer that another way does not serve keeps its own
    again = winolab.torch.convert(model[0], tolerance=1e-12)
    assert not again.layers[0].converted
    assert "the least that can be had" in again.layers[0].why
    assert model[0].algorithm == "winograd:2x2:3x3"
    assert winolab.torch.convert(model[0]).layers[0].converted
    assert model[0].algorithm is None


@pytest.mark.parametrize(
    ("arguments", "how", "error", "said"),
    [
        (([],), {}, TypeError, "expected a torch.nn.Module"),
        ((nn.ReLU(),), {"algorithm": "magic"}, ValueError, "magic"),
        ((nn.ReLU(),), {"device": "abacus"}, ValueError, "unknown device"),
        ((nn.Conv2d(3, 8, 3),), {"device": 3}, TypeError, "device is an int"),
        ((nn.Conv2d(3, 8, 3), "x"), {}, TypeError, "input is a str; expected a torch tensor"),
        ((nn.Conv2d(3, 8, 3),), {"precision": "nope"}, ValueError, "nope"),
        ((nn.Sequential(nn.LazyConv2d(8, 3)), X), {}, ValueError, "call it once"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, how: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        winolab.torch.convert(*arguments, **how)


def test_a_model_that_is_one_layer_or_none() -> None:
    assert str(winolab.torch.convert(nn.ReLU())) == "0 of 0 convolutions are winolab's"
    layer = nn.Conv1d(2, 2, 3)
    assert winolab.torch.convert(layer).layers[0].name == ""
    assert isinstance(layer, winolab.torch.Conv1d)


class Recurrent(nn.Module):
    """A layer met twice, by two names, and by a keyword; another with its weight; what is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3))
        self.second = self.first
        self.tied = nn.Conv2d(3, 3, 3, padding=1)
        self.tied.register_parameter("weight", next(iter(self.first.parameters())))
        self.noted: Any = None

    def forward(self, x: Any) -> Any:
        self.noted = x
        return self.tied(input=self.second(self.first(x)))


def test_layers_that_are_shared_keep_their_numbers() -> None:
    """A model whose parameters became fake tensors had lost its weights."""
    model: Any = Recurrent()
    reference = copy.deepcopy(model)
    done = winolab.torch.convert(model, X)
    assert [layer.name for layer in done.layers] == ["first.0", "tied"]
    assert [layer.input_shape for layer in done.layers] == [(2, 3, 16, 16)] * 2
    assert model.first is model.second
    assert model.first[0].weight is model.tied.weight
    assert model.noted is None
    for kept, was in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        assert type(kept) is torch.Tensor
        assert torch.equal(kept, was)
    torch.testing.assert_close(model(X), reference(X))
    measured = winolab.torch.compare(model, X, rounds=1)
    assert [layer.input_shape for layer in measured.layers] == [(2, 3, 16, 16)] * 2
    assert model.noted is X


def test_a_model_that_reads_numbers_is_converted_without_inputs() -> None:
    class Branches(nn.Sequential):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return y if y.sum() > 0 else -y

    model = Branches(nn.Conv2d(3, 3, 3))
    with pytest.raises(ValueError, match=r"reads numbers .*convert it without inputs"):
        winolab.torch.convert(model, X)
    assert type(model[0]) is nn.Conv2d
    assert winolab.torch.convert(model).layers[0].converted


def test_the_arguments_of_a_transposed_layer_in_any_order() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ConvTranspose2d(3, 4, 3, stride=2)

        def forward(self, x: Any) -> Any:
            return self.layer(output_size=[34, 34], input=x)

    model = Doubled()
    assert winolab.torch.convert(model, X).layers[0].input_shape == (2, 3, 16, 16)
    (layer,) = winolab.torch.compare(model, X, rounds=1).layers
    assert layer.error == layer.pytorch_error


def trained(model: nn.Module) -> list[float]:
    """The losses of a few steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_converted_network_trains_compiles_and_exports() -> None:
    reference, model = network().train(), network().train()
    winolab.torch.convert(model)
    losses = [trained(each) for each in (reference, model)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[1][-1] < 0.6 * losses[1][0]
    model.eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), model(X))
    exported = torch.export.export(model, (X,)).module()
    torch.testing.assert_close(exported(X), model(X))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(X).dtype == torch.bfloat16


def test_the_default_admits_four_times_what_direct_products_err() -> None:
    """Ω10(5,6) in 16 bits errs 13 times as much: it is taken where the tolerance admits it."""
    torch_layer = nn.Conv2d(256, 256, 5, padding=2, dtype=torch.float16)
    x = torch.empty(32, 256, 28, 28, dtype=torch.float16)
    done = winolab.torch.convert(torch_layer, x, device="h100")
    forward, data, gradient = done.layers[0].predicted
    direct = 2.1e-4  # of FP16 results, rounded
    assert all(p.relative_rms < 4.1 * direct for p in (forward, data, gradient))
    looser = winolab.torch.convert(torch_layer, x, device="h100", tolerance="direct:20")
    assert looser.layers[0].predicted[2].relative_rms > 8 * direct


@pytest.mark.parametrize("of", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrized_layers_are_converted(of: str) -> None:
    """Their weights are made by what was registered, which learns nothing from being converted."""
    register = getattr(nn.utils.parametrizations, of)
    torch.manual_seed(0)
    model = nn.Sequential(register(nn.Conv2d(3, 4, 3)), register(nn.ConvTranspose2d(4, 3, 3)))
    reference = copy.deepcopy(model)
    assert all(layer.converted for layer in winolab.torch.convert(model, X).layers)
    for kept, was in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        assert torch.equal(kept, was)
    assert isinstance(model[0], winolab.torch.Conv2d)
    found = []
    for each in (model, reference):
        y = each(X)
        y.square().sum().backward()
        found.append([y, *(p.grad for p in each.parameters())])
    for got, right in zip(*found, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)
    compared = winolab.torch.compare(model, X, rounds=1).layers
    again = copy.deepcopy(model).eval()
    y = model.eval()(X)
    calls = ("conv2d", X, model[0]), ("conv_transpose2d", model[0](X), model[1])
    for (name, x, layer), measured in zip(calls, compared, strict=True):
        most = relative_bound(name, x, layer.weight, layer.bias)
        assert 0 < max(measured.error, measured.pytorch_error) <= most
    torch.testing.assert_close(again(X), y)
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is winolab.torch.Conv2d
    torch.testing.assert_close(model(X), y)
    refused = nn.Sequential(register(nn.Conv2d(3, 4, 3)))
    named = type(refused[0])
    assert not winolab.torch.convert(refused, tolerance=1e-12).layers[0].converted
    assert type(refused[0]) is named


def test_hooks_see_a_converted_layer_as_before() -> None:
    model = network()
    seen: list[str] = []
    model[0].register_forward_pre_hook(lambda *_: seen.append("before"))
    model[0].register_forward_hook(lambda *_: seen.append("after"))
    model[0].register_full_backward_hook(lambda *_: seen.append("gradients"))
    winolab.torch.convert(model)
    model(X.clone().requires_grad_()).sum().backward()
    assert seen == ["before", "after", "gradients"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz.*:UserWarning")
def test_quantized_layers_and_weights_that_hooks_make() -> None:
    """The first stay, with the reason; the second are measured, too."""
    quantized = nn.Sequential(torch.ao.nn.quantized.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
    stays, converted = winolab.torch.convert(quantized).layers
    assert not stays.converted
    assert stays.why.endswith("conv.Conv2d is of quantization, which is not served")
    assert converted.converted
    hooked = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 4, 3)))
    assert winolab.torch.convert(hooked, X).layers[0].converted
    (measured,) = winolab.torch.compare(hooked, X, rounds=1).layers
    most = relative_bound("conv2d", X, hooked[0].weight, hooked[0].bias)
    assert 0 < max(measured.error, measured.pytorch_error) <= most


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Conv2d(3, 3, 1, padding=5, padding_mode="reflect"),
        lambda: nn.Conv1d(3, 3, 2, padding=9, padding_mode="circular"),
        lambda: nn.Conv3d(3, 3, 1, padding=(0, 1, 7), padding_mode="reflect"),
        lambda: nn.Conv2d(3, 3, 3, padding=30, padding_mode="replicate"),
        lambda: nn.ConvTranspose2d(3, 4, 1, padding=3),
        lambda: nn.ConvTranspose1d(3, 4, 3, stride=3, padding=13, output_padding=1),
        lambda: nn.ConvTranspose2d(3, 4, (3, 1), stride=(1, 4), padding=(0, 9), dilation=2),
    ],
)
def test_layers_are_converted_without_inputs_whatever_their_padding(layer: Any) -> None:
    model = layer()
    (found,) = winolab.torch.convert(model).layers
    assert found.converted, found.why


@pytest.mark.parametrize("name", ["forward", "_conv_forward", "_output_padding"])
@pytest.mark.parametrize("ours", [False, True])
def test_an_instance_with_functions_of_its_own_stays(name: str, ours: bool) -> None:
    model = nn.Sequential(nn.ConvTranspose2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    patched: Any = model[name != "_output_padding"]
    if ours:
        winolab.torch.convert(model)
    theirs, state = type(patched), dict(vars(patched))
    own = state[name] = lambda *arguments: None
    setattr(patched, name, own)
    layers = {layer.name: layer for layer in winolab.torch.convert(model, tolerance=1e-5).layers}
    stays = layers.pop(str(int(name != "_output_padding")))
    assert not stays.converted
    assert stays.why == f"its {name} is the instance's own: what that changes is not known"
    assert type(patched) is theirs
    assert vars(patched) == state
    assert all(layer.converted for layer in layers.values())


class Failing(nn.Module):
    """A parametrization that fails as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Any = None

    def forward(self, w: Any) -> Any:
        if self.error:
            raise self.error
        return w


@pytest.mark.parametrize(
    "error", [RuntimeError("of\ntwo lines"), KeyError("k"), KeyboardInterrupt()]
)
def test_whatever_is_raised_the_model_is_as_it_was(error: BaseException) -> None:
    """PyTorch's own errors are a reason to stay."""
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3), winolab.torch.Conv2d(3, 3, 3))
    setattr(model[0], "tolerance", "the user's")  # noqa: B010
    failing = Failing()
    nn.utils.parametrize.register_parametrization(model[1], "weight", failing)
    failing.error = error
    before = [(type(module), dict(vars(module))) for module in model]
    if isinstance(error, RuntimeError):
        first, second, third = winolab.torch.convert(model).layers
        assert (first.converted, second.converted, third.converted) == (True, False, True)
        assert second.why == "of two lines"
        assert (type(model[1]), vars(model[1])) == before[1]
        return
    with pytest.raises(type(error)):
        winolab.torch.convert(model, tolerance=1e-5)
    assert [(type(module), vars(module)) for module in model] == before


@pytest.mark.parametrize("value", [1, 0, None, [], "no"])
def test_batch_invariant_is_true_or_false(value: Any) -> None:
    """Whatever else went into the call, or was called."""
    said = rf"^batch_invariant is {re.escape(repr(value))}; expected True or False$"
    model, w = nn.Conv2d(3, 3, 3), torch.ones(3, 3, 3, 3)
    with pytest.raises(TypeError, match=said):
        winolab.torch.convert(model, batch_invariant=value)
    assert type(model) is nn.Conv2d
    for function in (winolab.torch.conv2d, winolab.torch.conv_transpose2d):
        with pytest.raises(TypeError, match=said):
            function(X, w, batch_invariant=value)
    with pytest.raises(TypeError, match=said):
        winolab.torch.ConvTranspose2d(3, 3, 3, batch_invariant=value)
    layer = winolab.torch.Conv2d(3, 3, 3)
    with pytest.raises(TypeError, match=said):
        layer.batch_invariant = value
    assert layer.batch_invariant is False
    assert layer.train()(X).shape == (2, 3, 14, 14)
