"""Training by winolab.torch: tensors on the CPU that are taken for a GPU's, kernels that run there.

What comes again is found by one look, in Python and by the native module, so that whatever may
change between two calls changes here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.gpu.support.steps import (  # noqa: E402
    HOW,
    OURS,
    THEIRS,
    Launch,
    Pair,
    W,
    agree,
    drawn,
    gradients,
)
from tests.torch.network import tensors  # noqa: E402
from winolab.torch import kept  # noqa: E402


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_steps_with_other_addresses_and_weights(prepared, last: bool) -> None:
    kept = []
    _, w = drawn(last)
    for step in range(4):
        x, _ = drawn(last)
        kept += [x, *agree((x, w))]  # whose memory nothing else gets
        assert len(prepared) == 3
        assert kept[-3].is_contiguous(memory_format=torch.channels_last) == last
        with torch.no_grad():
            w.add_(step + 1)  # as an optimizer writes to it
    assert sorted(prepared) == ["backward_data", "backward_filter", "forward"]
    assert len({v.data_ptr() for v in kept}) == len(kept)


@pytest.mark.parametrize("which", [0, 1], ids=["the input", "the weight"])
def test_one_operand_that_requires_grad(prepared, which: int) -> None:
    pair = drawn()
    for _ in range(3):
        agree((pair[0].detach(), pair[1]) if which else (pair[0], pair[1].detach()))
    assert sorted(prepared) == [("backward_data", "backward_filter")[which], "forward"]
    agree(pair)
    assert len(prepared) == 3


def test_transposed_convolutions(prepared) -> None:
    """Whose gradients are a forward convolution and a filter's."""
    ours = partial(winolab.torch.conv_transpose2d, **HOW)
    theirs = partial(torch.nn.functional.conv_transpose2d, padding=1)
    w, kept = tensors((4, 8, 3, 3), dtype=torch.float32)[0].requires_grad_(), []
    for _ in range(5):
        kept.append(drawn()[0])
        for mine, right in zip(
            *(gradients(by, (kept[-1], w)) for by in (ours, theirs)), strict=True
        ):
            torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)
    assert sorted(prepared) == ["backward_data", "backward_filter", "forward"]


def test_gradients_that_lie_otherwise(prepared) -> None:
    """Expanded, transposed, of a view that begins at an odd address: each is another call."""
    shape = (2, 8, 6, 5)
    whole = tensors((2, 8, 5, 6), (2 * 8 * 6 * 5 + 1,), dtype=torch.float32)
    others = torch.ones(()).expand(shape), whole[0].mT, whole[1][1:].view(shape)
    for _ in range(3):
        for upstream in (None, *others):
            agree(drawn(), upstream)
    assert len(prepared) == 1 + 2 * (1 + len(others))


def test_derivatives_of_gradients_are_pytorch_s(prepared) -> None:
    """Also behind steps without them."""

    def twice(convolve: Callable[[Any, Any], Any], pair: Pair) -> Any:
        y = convolve(*pair)
        first = torch.autograd.grad(y.square().sum(), pair, create_graph=True)
        return torch.autograd.grad(sum(v.square().sum() for v in first), pair)

    pair = drawn()
    for _ in range(6):
        agree(pair)
        for mine, theirs in zip(twice(OURS, pair), twice(THEIRS, pair), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-1)


def test_what_was_saved_may_come_back_as_a_copy(prepared) -> None:
    """As where hooks keep it elsewhere meanwhile."""
    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(lambda v: v.detach().numpy().copy(),
                                                      torch.from_numpy):  # fmt: skip
            agree(drawn())
    assert len(prepared) == 3


def test_calls_go_to_the_stream_that_is_current(prepared, monkeypatch) -> None:
    pair = drawn()
    for stream in (7, 7, 7, 8, 8, 7):
        monkeypatch.setattr(Launch, "current", stream)
        Launch.streams.clear()
        agree(pair)
        assert {*Launch.streams} == {stream}


def test_modules_notice_what_is_set_anew(prepared) -> None:
    layer = winolab.torch.Conv2d(4, 8, 3, padding=1, precision="fp32_ffma")
    theirs = torch.nn.Conv2d(4, 8, 3, padding=1)
    theirs.load_state_dict(layer.state_dict())
    x = drawn()[0].detach()
    for name, value in (
        ("stride", (2, 1)),
        ("padding", (0, 1)),
        ("padding", "valid"),
        ("padding", (1, 1)),
        ("dilation", (1, 2)),
        ("padding_mode", "circular"),
        ("padding_mode", "zeros"),
        ("bias", None),
        ("weight", torch.nn.Parameter(torch.ones(W))),
    ):
        for module in (layer, theirs):
            setattr(module, name, value)
        for _ in range(3):
            torch.testing.assert_close(layer(x), theirs(x), rtol=1e-4, atol=1e-4)
    before = len(prepared)
    layer.algorithm = "direct"
    layer(x)
    assert len(prepared) == before + 1
    setattr(layer, "stride", (1.5, 1))  # noqa: B010
    with pytest.raises(TypeError, match=r"stride is 1\.5|stride is \(1\.5, 1\)"):
        layer(x)


@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d"])
def test_filters_in_evaluation_are_those_of_the_weight(prepared, monkeypatch, kind: str) -> None:
    """Transformed once, for inputs elsewhere every time, until the weight changes."""
    monkeypatch.setattr(kept, "serves", lambda a, w: not torch.is_grad_enabled())
    how = {"padding": 1, "bias": False}
    layer = getattr(winolab.torch, kind)(4, 8, 3, **{**HOW, **how})
    theirs = getattr(torch.nn, kind)(4, 8, 3, **how)
    layer.eval()
    alive = []
    for step in range(8):
        if step == 4:
            with torch.no_grad():
                layer.weight.mul_(-2)
        theirs.load_state_dict(layer.state_dict())
        alive.append(drawn()[0].detach())
        with torch.no_grad():
            alive.append(layer(alive[-1]))
        torch.testing.assert_close(alive[-1], theirs(alive[-2]), rtol=1e-4, atol=1e-4)
        assert layer.kept.nbytes
    assert len(prepared) == 2  # another filter, another call: it has an address of its own
    x = alive[0].requires_grad_()
    expected = torch.autograd.grad(theirs(x).sum(), x)
    for got, right in zip(torch.autograd.grad(layer(x).sum(), x), expected, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)


def test_autocast_counts_when_it_is_on(prepared) -> None:
    """A result has its type, a gradient the parameter's, whatever was called before."""
    pair, how = drawn(), {"padding": 1}
    for kind in (None, torch.bfloat16, None, torch.bfloat16, torch.bfloat16):
        with torch.autocast("cpu", dtype=kind or torch.bfloat16, enabled=bool(kind)):
            y = winolab.torch.conv2d(*pair, **how)
        assert y.dtype == (kind or torch.float32)
        got = torch.autograd.grad(y, pair, torch.ones_like(y))
        assert {v.dtype for v in got} == {torch.float32}
