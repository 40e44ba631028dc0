"""Two GPUs of one host: calls on either, and replicas that DataParallel runs in threads."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.torch.network import tensors  # noqa: E402
from winolab.torch import plain  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.device_count() < 2, reason="takes two GPUs: on one nothing is replicated"
    ),
]
# What is picked is predicted to err at most so many times as much as direct sums do.
ADMITTED = 4
PLACES = [0, 1]


@pytest.fixture(autouse=True, params=[True, False], ids=["by Python", "past Python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.NATIVE.begin()
    plain.NATIVE.wait()
    assert plain.NATIVE.module
    if request.param:
        monkeypatch.setattr(plain.NATIVE, "call", None)


def test_tensors_may_lie_on_another_device_than_the_current_one() -> None:
    x, w = (v.cuda() for v in tensors((8, 64, 28, 28), (64, 64, 3, 3), dtype=torch.float32))
    for _ in range(4):
        with torch.cuda.device(1):
            there = winolab.torch.conv2d(x, w, padding=1)
        assert there.device.index == 0
        assert torch.equal(there, winolab.torch.conv2d(x, w, padding=1))


def test_replicas_have_filters_of_their_own() -> None:
    """A weight that changes is another filter. Split products err by 3e-7, and a filter that is
    another's by 1."""
    layer = winolab.torch.Conv2d(64, 64, 3, padding=1, bias=False).cuda().eval()
    x = tensors((8, 64, 28, 28), dtype=torch.float32)[0].cuda()
    both = torch.nn.DataParallel(layer, PLACES)
    with torch.no_grad():
        for step in range(8):
            if step == 4:
                layer.weight.mul_(-3)
            exact = torch.nn.functional.conv2d(x.double(), layer.weight.double(), padding=1)
            assert float((both(x).double() - exact).norm()) < 1e-5 * float(exact.norm())


def gradients(model: Any, x: Any, upstream: Any) -> list[Any]:
    """The result, and gradients of the sum of its products with ``upstream``."""
    model.zero_grad()
    y = model(x)
    (y * upstream).sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


def test_replicas_train_as_the_undivided_model_does() -> None:
    """Gradients of two replicas, of three images and of two, are summed up to those of one model.

    Without activations every number is a sum of products of the inputs, so that FP32 may be off by
    the same sum of magnitudes, for each rounding on the way: ``longest`` of them, since a sum is as
    long as its filter, or for a filter's gradient as there are outputs.
    """
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.Conv2d(4, 6, 3, padding=1),
        torch.nn.ConvTranspose2d(6, 3, 3, padding=1),
    )
    exact = copy.deepcopy(model).double()
    assert all(layer.converted for layer in winolab.torch.convert(model).layers)
    seen: set[tuple[int, int]] = set()
    model[0].register_forward_hook(lambda _, given, y: seen.add((y.device.index, len(given[0]))))
    model = model.cuda()
    divided = torch.nn.DataParallel(model, PLACES)
    x, upstream = tensors((5, 3, 8, 8), (5, 3, 8, 8), dtype=torch.float32)
    filters = [p for p in exact.parameters() if p.dim() > 1]
    longest = sum(w[0].numel() + w[:, 0].numel() + 4 for w in filters)  # forwards and backwards
    longest += x[:, 0].numel() + len(PLACES)
    rounding = longest * 2.0**-24 / (1 - longest * 2.0**-24)
    for step in range(6):
        if step == 3:  # replicas have the filters of this step, not of one before
            with torch.no_grad():
                for parameter in (*exact.parameters(), *model.parameters()):
                    parameter.mul_(-4)  # without rounding
        positive = copy.deepcopy(exact)
        for parameter in positive.parameters():
            parameter.data.abs_()
        wide = x.double(), upstream.double()
        due = gradients(exact, *wide)
        sums = gradients(positive, *(v.abs() for v in wide))
        one = gradients(model, x.cuda(), upstream.cuda())
        seen.clear()
        two = gradients(divided, x.cuda(), upstream.cuda())
        assert seen == {(0, 3), (1, 2)}
        for right, most, whole, mine in zip(due, sums, one, two, strict=True):
            bound = ADMITTED * rounding * most
            assert bool(((whole.cpu().double() - right).abs() <= bound).all())
            assert bool(((mine.cpu().double() - right).abs() <= bound).all())
            assert float(bound.norm()) < 0.1 * float(right.norm())  # half of them would be missed
