"""winolab.torch's modules beside torch.nn's: the same parameters, results and gradients."""

from __future__ import annotations

import copy
import math
import pickle
from functools import partial
from inspect import signature
from typing import Any, cast

import pytest
import torch
from torch import nn

import winolab.torch
from tests.torch.network import bottlenecks, tensors
from tests.torch.samples import check, exact_and_bound
from winolab.torch import operators
from winolab.torch.modules import OURS

ROUNDED = 2.0**-8  # of a number, at most, in bfloat16
SIGMAS = 6  # standard deviations of the loss
PAIRS = [pytest.param(theirs, ours, id=ours.__name__) for theirs, ours in OURS.items()]


def inputs(ndim: int, dtype: Any = torch.float32) -> Any:
    return tensors((3, 4, *(9, 8, 7)[:ndim]), dtype=dtype)[0]


def ndim_of(module: type) -> int:
    return int(module.__name__[-2])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_results_and_gradients_are_pytorch_s(theirs: Any, ours: Any, groups: int) -> None:
    how: dict[str, Any] = {"stride": 2, "padding": 1, "groups": groups, "dtype": torch.float64}
    if "Transpose" in ours.__name__:
        how["output_padding"] = 1
    reference, layer = theirs(4, 6, 3, **how), ours(4, 6, 3, **how)
    layer.load_state_dict(reference.state_dict())
    x = inputs(ndim_of(ours), torch.float64)
    found = []
    for module in (reference, layer):
        a = x.clone().requires_grad_()
        y = module(a)
        y.square().sum().backward()
        found.append((y, a.grad, *(p.grad for p in module.parameters())))
    for mine, right in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_arguments_are_shown(theirs: Any, ours: Any) -> None:
    """They were *arguments and **named, of which torch.nn.utils.skip_init takes no device."""
    shown = list(signature(ours).parameters)
    own = ["algorithm", "precision", "tolerance", "batch_invariant"]
    assert shown == [*signature(theirs).parameters, *own]
    layer = nn.utils.skip_init(ours, 4, 6, kernel_size=3, tolerance=1e-5)
    assert layer.weight.device.type == "cpu"
    assert layer.tolerance == 1e-5


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes_are_pytorch_s(mode: Any) -> None:
    how: dict[str, Any] = {"padding": 2, "padding_mode": mode, "dtype": torch.float64}
    reference, layer = nn.Conv2d(4, 6, 3, **how), winolab.torch.Conv2d(4, 6, 3, **how)
    layer.load_state_dict(reference.state_dict())
    x = inputs(2, torch.float64)
    torch.testing.assert_close(layer(x), reference(x), rtol=1e-12, atol=1e-12)


def test_a_transposed_layer_has_zeros_around_it_alone() -> None:
    """PyTorch refuses another mode in the call, too, not only when the layer is made."""
    layers = nn.ConvTranspose2d(3, 4, 3), winolab.torch.ConvTranspose2d(3, 4, 3)
    for layer in layers:
        layer.padding_mode = "circular"
        with pytest.raises(ValueError, match="zeros"):
            layer(torch.ones(1, 3, 5, 5))


def test_a_transposed_layer_takes_an_output_size() -> None:
    layer = winolab.torch.ConvTranspose2d(4, 6, 3, stride=2)
    assert layer(inputs(2), output_size=[20, 18]).shape == (3, 6, 20, 18)


@pytest.mark.parametrize("how", [{"algorithm": "winograd:2x2:3x3"}, {"tolerance": 1e-6}], ids=str)
def test_what_is_asked_for_is_computed(how: Any) -> None:
    layer = winolab.torch.Conv2d(4, 6, 3, padding=1, **how)
    x = inputs(2)
    named = {"padding": 1} | how
    assert torch.equal(layer(x), winolab.torch.conv2d(x, layer.weight, layer.bias, **named))
    plain = winolab.torch.conv2d(x, layer.weight, layer.bias, padding=1)
    assert not torch.equal(layer(x), plain)
    check(layer(x), *_within(layer, x, padding=1), torch.float32)
    assert all(f"{name}={value!r}" in repr(layer) for name, value in how.items())


def _within(layer: Any, x: Any, **how: Any) -> tuple[Any, Any]:
    """The FP64 result, and F(2×2,3×3)'s error: its transforms grow sums by at most 36 times."""
    exact, bound = exact_and_bound("conv2d", x, layer.weight, layer.bias, **how)
    return exact, 36 * bound.amax()


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"algorithm": "winograd"}, ValueError, "winograd"),
        ({"algorithm": "direct", "tolerance": 1e-5}, ValueError, "give one of them"),
        ({"tolerance": -1}, ValueError, "expected a number above 0"),
    ],
    ids=str,
)
def test_what_names_nothing_is_refused_when_the_layer_is_made(
    how: Any, error: Any, said: str
) -> None:
    with pytest.raises(error, match=said):
        winolab.torch.Conv2d(4, 6, 3, **how)


@pytest.mark.parametrize("ours", ["Conv2d", "ConvTranspose2d"])
def test_an_image_s_bits_do_not_depend_on_its_batch(ours: str) -> None:
    layer = getattr(winolab.torch, ours)(4, 6, 3, stride=2, batch_invariant=True)
    x = inputs(2)
    y = layer(x)
    for i in range(len(x)):
        assert torch.equal(y[i : i + 1], layer(x[i : i + 1]))
    assert torch.equal(layer(x.flip(0)).flip(0), y)
    assert layer(x[:0]).shape == (0, *y.shape[1:])
    plain = getattr(torch.nn, ours)(4, 6, 3, stride=2)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(y, plain(x))


SAME: dict[str, Any] = {"batch_invariant": True}


def alone(name: str, x: Any, w: Any) -> Any:
    """A batch's result, images computed alone."""
    return getattr(winolab.torch, name)(x, w, padding=1, batch_invariant=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch.func.jvp's
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("way", ["call", "vmap", "export", "compile", "gradient", "tangent"])
def test_images_are_computed_alone_whatever_transforms_the_call(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of torch.vmap had been one, and exported code had its example's batch."""
    torch.compiler.reset()
    convolve, batches = operators.cpu.convolve, []

    def noted(asked: Any, a: Any, b: Any) -> Any:
        batches.append(1 if asked.direction == "backward_filter" else len(a))
        return convolve(asked, a, b)

    monkeypatch.setattr(operators.cpu, "convolve", noted)
    x, w = tensors((5, 4, 6, 7), (4, 4, 3, 3), dtype=torch.float32)
    call = partial(alone, name)
    made: Any = call
    if way == "vmap":
        made = lambda x, w: torch.vmap(call, (0, None))(x[:, None], w)[:, 0]  # noqa: E731
    elif way == "compile":
        made = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    elif way == "export":

        class Layer(nn.Module):
            def forward(self, x: Any) -> Any:
                return call(x, w)

        sizes = ({0: torch.export.Dim("batch")},)
        program = torch.export.export(Layer(), (x[:2],), dynamic_shapes=sizes).module()
        made = lambda x, _: program(x)  # noqa: E731
    elif way == "gradient":
        x, w = x.requires_grad_(), w.requires_grad_()
        made = lambda x, w: torch.autograd.grad(call(x, w).square().sum(), (x, w))[0]  # noqa: E731
    elif way == "tangent":
        made = lambda x, w: torch.func.jvp(call, (x, w), (x, w))[1]  # noqa: E731
    y = made(x, w)
    assert torch.equal(y, torch.cat([made(image, w) for image in x.split(1)]))
    assert len(batches) >= 10
    assert {*batches} == {1}
    assert made(x[:0], w).shape == (0, *y.shape[1:])


@pytest.mark.parametrize(("size", "together"), [(28, True), (224, False)])
def test_images_with_the_same_bits_in_every_batch_are_predicted_so(
    size: int, together: bool
) -> None:
    """Small maps by one launch that takes longer than the usual one, large ones each alone."""
    found = []
    for batch, how in ((1, {}), (1, SAME), (32, SAME), (32, {})):
        x = torch.empty(batch, 64, size, size)
        done = winolab.torch.convert(nn.Conv2d(64, 64, 3), x, device="h100", **how)
        found.append(done.layers[0].predicted)
    usual, one, every, free = (each[0] for each in found)
    assert (one.algorithm, one.relative_rms) == (every.algorithm, every.relative_rms)
    assert free.seconds < every.seconds <= 32 * usual.seconds
    assert (every.seconds == 32 * one.seconds) == (not together)
    assert found[2][2] == found[3][2]  # a filter's gradient sums over all


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_layer_with_a_tolerance_is_compiled_whole(dynamic: bool | None) -> None:
    """With dynamic shapes a number that a module has is a variable, whose text is not known."""
    torch.compiler.reset()
    layer = winolab.torch.Conv2d(4, 6, 3, tolerance=1e-5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for batch in (1, 3):
        x = tensors((batch, 4, 9, 8), dtype=torch.float32)[0]
        assert torch.equal(compiled(x), layer(x))
    assert layer.tolerance == 1e-5
    layer.tolerance = None
    check(layer(x), *exact_and_bound("conv2d", x, layer.weight, layer.bias), torch.float32)


def test_layers_are_copied_pickled_and_compiled() -> None:
    layer = winolab.torch.Conv2d(4, 6, 3, tolerance=1e-6)
    x = inputs(2)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), layer(x))
        assert twin.tolerance == 1e-6
        assert twin.kept is not layer.kept
    for module in (layer, layer.eval()):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), module(x))


@pytest.mark.parametrize("training", [False, True])
def test_symbolic_traces_compute_the_same(training: bool) -> None:
    """torch.fx records our functions, in a module of our own classes or called by hand."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular")
            self.up = nn.ConvTranspose2d(6, 4, 3, stride=2)

        def forward(self, x: Any) -> Any:
            return winolab.torch.conv2d(self.up(self.down(x)), self.down.weight, stride=2)

    model = Both().train(training)
    winolab.torch.convert(model)
    down, up = cast(Any, model.down), cast(Any, model.up)
    down.tolerance, up.batch_invariant = 1e-6, True
    traced = torch.fx.symbolic_trace(model)
    called = [n.target.__name__ for n in traced.graph.nodes if n.op == "call_function"]
    assert called == ["pad", "correlate", "transpose", "correlate"]
    x = inputs(2)
    assert torch.equal(traced(x), model(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torch_jit_script_of_a_layer_is_refused_in_a_line() -> None:
    """The annotations of its attributes had been refused, in several."""
    said = r"^torch.jit.script does not know this operator; use torch.export.export$"
    for layer in (winolab.torch.Conv2d(4, 6, 3), winolab.torch.ConvTranspose2d(4, 6, 3)):
        for model in (layer, nn.Sequential(nn.Sequential(layer))):
            with pytest.raises(ValueError, match=said):
                torch.jit.script(model)
            assert model(inputs(2)).shape[:2] == (3, 6)


def test_a_complex_module_is_pytorch_s() -> None:
    how: Any = {"padding": 1, "dtype": torch.complex128}
    for theirs, ours in (
        (nn.Conv2d, winolab.torch.Conv2d),
        (nn.ConvTranspose1d, OURS[nn.ConvTranspose1d]),
    ):
        reference, layer = theirs(4, 6, 3, **how), ours(4, 6, 3, **how)
        layer.load_state_dict(reference.state_dict())
        x: Any = torch.complex(*tensors(*[(3, 4, *(9, 8)[: ndim_of(ours)])] * 2))
        torch.testing.assert_close(layer(x), reference(x), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(layer.eval()(x), reference(x), rtol=1e-13, atol=1e-13)


def losses(model: Any, x: torch.Tensor, labels: torch.Tensor, amp: bool = True) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        return nn.functional.cross_entropy(model(x), labels)


def exact(
    model: nn.Module, x: torch.Tensor, labels: torch.Tensor
) -> tuple[float, float, list[torch.Tensor]]:
    """The loss in FP64, by how much roundings of all that is rounded move it, and gradients.

    A rounding moves a number by up to ROUNDED of it, and the loss by its derivative: each of the
    parameters, of the images, and of what layers return, which the next ones take. Roundings are
    independent, so that their squares add up, and are spread evenly: a third of the largest square.
    """
    wide = copy.deepcopy(model).double()
    held: list[torch.Tensor] = []

    def hold(_: nn.Module, __: Any, y: torch.Tensor) -> torch.Tensor:
        y.retain_grad()
        held.append(y)
        return y.clone()  # which layers in place write

    for module in wide.modules():
        if not list(module.children()):
            module.register_forward_hook(hold)
        if isinstance(module, nn.ReLU):
            module.inplace = False
    images = x.double().requires_grad_()
    loss = losses(wide, images, labels, amp=False)
    loss.backward()
    numbers = [images, *held, *wide.parameters()]
    moved = sum(float((v.detach() * v.grad).square().sum()) for v in numbers if v.grad is not None)
    gradients = [p.grad for p in wide.parameters() if p.grad is not None]
    return loss.item(), ROUNDED * math.sqrt(moved / 3), gradients


def apart(model: nn.Module, gradients: list[torch.Tensor]) -> float:
    """How far a model's gradients lie from others, over all of them."""
    mine = [p.grad for p in model.parameters()]
    pairs = zip(mine, gradients, strict=True)
    return math.sqrt(sum(float((p.double() - q).square().sum()) for p, q in pairs if p is not None))


def test_a_resnet_trains_compiled_under_autocast() -> None:
    """Every step begins with the same weights for PyTorch's, whose gradients have the same numbers
    rounded: errors of one distribution, a third of the gradients, where one is lost err by all."""
    torch.compiler.reset()
    torch.manual_seed(0)
    theirs = bottlenecks()
    mine = copy.deepcopy(theirs)
    done = winolab.torch.convert(mine)
    assert [layer.converted for layer in done.layers] == [True] * 12
    compiled = torch.compile(mine, fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9)
    x, labels = tensors((6, 3, 48, 48), dtype=torch.float32)[0], torch.arange(6)
    found = []
    for _ in range(3):
        theirs.load_state_dict(mine.state_dict())
        right, moved, gradients = exact(theirs, x, labels)
        optimizer.zero_grad()
        theirs.zero_grad()
        loss, due = losses(compiled, x, labels), losses(theirs, x, labels)
        loss.backward()
        due.backward()
        for got in (loss, due):
            assert abs(got.item() - right) <= SIGMAS * moved
        assert apart(mine, gradients) <= 2 * apart(theirs, gradients)
        optimizer.step()
        found.append(loss.item())
    assert found[-1] < found[0]
