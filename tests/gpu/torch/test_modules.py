"""Converted networks on a GPU: results, kept filters, memory, what a batch changes."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import winolab.torch  # noqa: E402
from tests.gpu.support.steps import check_captured  # noqa: E402

pytestmark = pytest.mark.gpu


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(16, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(64, 32, 1),
    ).cuda()


def images(*, dtype=torch.float32):
    return torch.randn(8, 16, 28, 28, device="cuda", dtype=dtype)


def error(y, exact):
    assert y.shape == exact.shape
    return float((y.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("channels_last", [False, True])
def test_inference_and_gradients_are_those_of_fp64(channels_last: bool) -> None:
    model = network()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    done = winolab.torch.convert(model, images())
    assert all(layer.converted for layer in done.layers), done
    assert all(p.seconds for layer in done.layers for p in layer.predicted)
    x = images()
    most = 4 * max(p.relative_rms for layer in done.layers for p in layer.predicted)
    y, right = model(x), exact(x.double())
    assert error(y.detach(), right.detach()) <= most
    y.square().sum().backward()
    right.square().sum().backward()
    for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        assert error(mine.grad, theirs.grad) <= 4 * most
    model.eval()
    with torch.no_grad():
        first = model(x)
        kept = [layer.kept.nbytes for layer in model if hasattr(layer, "kept")]
        assert any(kept)
        assert torch.equal(model(x), first)
        assert error(first, right.detach()) <= most
        for p in (*model.parameters(), *exact.parameters()):
            p.mul_(1.5)
        assert error(model(x), exact(x.double())) <= most
        with torch.autocast("cuda", dtype=torch.float16):
            half = model(x)
            assert half.dtype == torch.float16
            assert error(half, exact(x.double())) < 5e-3
    model.train()
    assert not any(layer.kept.nbytes for layer in model if hasattr(layer, "kept"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_image_s_bits_do_not_depend_on_its_batch(dtype) -> None:
    model = network().to(dtype)
    winolab.torch.convert(model, batch_invariant=True)
    x = images(dtype=dtype)
    for mode in (model.train(), model.eval()):
        with torch.no_grad():
            y = mode(x)
            assert torch.equal(mode(x[3:4]), y[3:4])
            assert torch.equal(mode(x.flip(0)).flip(0), y)


def test_a_graph_is_captured_with_kept_filters() -> None:
    model = network().eval()
    winolab.torch.convert(model)
    check_captured(model, images())


def test_layers_are_compared_with_pytorch_s() -> None:
    model = network().eval()
    winolab.torch.convert(model)
    found = winolab.torch.compare(model, images(), rounds=3)
    assert len(found.layers) == 3
    for layer in found.layers:
        assert 0 < layer.error < 2e-6
        assert 1e-6 < layer.seconds < 1e-2
