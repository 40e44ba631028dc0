"""Training by winolab.torch: tensors on the CPU that are taken for a GPU's, kernels that run there.

What comes again is found by one look, so that whatever may change between two calls changes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.gpu.support.pretended import HostLaunch, host_kernels, on_the_cpu  # noqa: E402
from tests.torch.network import tensors  # noqa: E402
from winolab.gpu.runtime import arrays, conv  # noqa: E402
from winolab.torch import kept, operators  # noqa: E402

HOW = {"padding": 1, "precision": "fp32_ffma", "algorithm": "gamma:4:2:3"}
X, W = (2, 4, 6, 5), (8, 4, 3, 3)
Pair = tuple[Any, Any]


class Launch(HostLaunch):
    """Streams of launches are written down."""

    streams: ClassVar[list[int]] = []

    def on(self, stream: int) -> None:
        self.stream = stream

    def start(self) -> int:
        Launch.streams.append(self.stream)
        return super().start()


@pytest.fixture
def prepared(monkeypatch) -> Iterator[list[str]]:
    """The directions of calls that were prepared."""
    found: list[str] = []

    def prepare(direction: str, *rest: Any) -> Any:
        found.append(direction)
        return prepare_call(direction, *rest)

    def load(source: str, title: str, shared: Any, index: int) -> Any:
        return host_kernels(source, shared)

    prepare_call, describe = conv.prepare_call, arrays.TORCH.describe
    monkeypatch.setattr(conv, "prepare_call", prepare)
    monkeypatch.setattr(arrays.Torch, "array", lambda library, name, value: value)
    monkeypatch.setattr(
        arrays.Torch, "describe", lambda library, array: describe(array)._replace(index=0)
    )
    monkeypatch.setattr(arrays.Torch, "on", lambda library, index: nullcontext())
    monkeypatch.setattr(arrays, "_device", lambda index: torch.device("cpu"))
    monkeypatch.setattr(arrays, "_current_device", lambda: lambda: 0)
    monkeypatch.setattr(arrays, "_stream_of", lambda: lambda index: 7)
    on_the_cpu(monkeypatch, load, Launch)
    monkeypatch.setattr(operators, "_on_cpu", operators._on_cuda)
    Launch.streams.clear()
    arrays._maker.cache_clear()
    yield found
    arrays._maker.cache_clear()


def drawn(last: bool = False) -> Pair:
    x, w = (v.requires_grad_() for v in tensors(X, W, dtype=torch.float32))
    if not last:
        return x, w
    return tuple(v.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
                 for v in (x, w))  # fmt: skip


def gradients(convolve: Callable[[Any, Any], Any], pair: Pair, upstream: Any = None) -> list[Any]:
    y = convolve(*pair)
    wanted = [v for v in pair if v.requires_grad]
    upstream = torch.ones_like(y) if upstream is None else upstream
    return [y.detach(), *torch.autograd.grad(y, wanted, upstream)]


OURS = partial(winolab.torch.conv2d, **HOW)
THEIRS = partial(torch.nn.functional.conv2d, padding=1)


def agree(pair: Pair, upstream: Any = None) -> list[Any]:
    """Result and gradients, which are PyTorch's but for roundings."""
    got = gradients(OURS, pair, upstream)
    for mine, theirs in zip(got, gradients(THEIRS, pair, upstream), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    return got


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
    for _ in range(3):
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
    pair, current = drawn(), [7]
    monkeypatch.setattr(arrays, "_stream_of", lambda: lambda index: current[0])
    for stream in (7, 7, 8, 7):
        current[0] = stream
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
