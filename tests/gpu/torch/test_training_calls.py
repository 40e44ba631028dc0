"""Training by winolab.torch: tensors on the CPU that are taken for a GPU's, kernels that run there.

What comes again is found by one look, in Python and by the native module, so that whatever may
change between two calls changes here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import pytest

torch: Any = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import winolab.torch  # noqa: E402
from tests.gpu.support.pretended import (  # noqa: E402
    HostLaunch,
    host_encoder,
    host_kernels,
    on_the_cpu,
)
from tests.torch.network import tensors  # noqa: E402
from winolab.gpu import driver  # noqa: E402
from winolab.gpu.runtime import arrays, conv  # noqa: E402
from winolab.torch import derivatives, kept, modules, native, operators, plain  # noqa: E402

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 4)
HOW = {"padding": 1, "precision": "fp32_ffma", "algorithm": "gamma:4:2:3"}
X, W = (2, 4, 6, 5), (8, 4, 3, 3)
Pair = tuple[Any, Any]


class Launch(HostLaunch):
    """Streams of launches are written down, and how many come from the native module."""

    streams: ClassVar[list[int]] = []
    current, native, status = 7, 0, 0
    one = Lock()

    def on(self, stream: int) -> None:
        self.stream = stream

    def start(self) -> int:
        with Launch.one:  # kernels on the CPU share their threads
            Launch.streams.append(self.stream)
            return super().start()

    def words(self) -> tuple[int, list[int], int]:
        self.held = (ctypes.c_uint64 * 5)(1, 2, 3, 4, self.stream)
        self.started = FUNCTION(self.from_native)
        place = ctypes.addressof(self.held)
        return driver.address_of(self.started), [place + 8 * i for i in range(4)], place + 32

    def from_native(self, *words: int) -> int:
        assert words == (1, 2, 3, 4)
        Launch.native += 1
        self.stream = self.held[4]
        return Launch.status or self.start()

    def check(self, status: int) -> None:
        raise RuntimeError(f"the driver says {status}")


class Maps:
    """Tensor maps as kernels on the CPU read them, which are told other addresses."""

    def __init__(self) -> None:
        self.at: dict[int, Any] = {}
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)(self.told)

    def encoder(self, map: Any, to: int) -> Any:
        self.at[to] = host_encoder(map, to)
        return self.at[to]

    def told(self, place: int, address: int) -> int:
        self.at[place](address)
        return 0


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The native module, compiled once for all processes of a run."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "native"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINOLAB_CACHE", str(folder))
        return native.loaded(native.compiled())


@pytest.fixture(params=["Python", "native"])
def prepared(monkeypatch, request: pytest.FixtureRequest) -> Iterator[list[str]]:
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
    monkeypatch.setattr(arrays, "_stream_of", lambda: lambda index: Launch.current)
    on_the_cpu(monkeypatch, load, Launch)
    monkeypatch.setattr(operators, "_on_cpu", operators._on_cuda)
    maps = Maps()
    monkeypatch.setattr(driver, "encoder", maps.encoder)
    monkeypatch.setattr(driver, "replacing", lambda: driver.address_of(maps.function))
    Launch.streams.clear()
    Launch.native = 0
    arrays._maker.cache_clear()
    by = native.Native(list(plain.PLAIN["cpu"]), plain.NATIVE._keys[1])
    by.gradient = plain.NATIVE.gradient
    for where in (plain, modules):
        monkeypatch.setattr(where, "NATIVE", by)
    if request.param == "native":
        by.use(request.getfixturevalue("module"))
    yield found
    assert bool(Launch.native) == (request.param == "native")
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


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_module_s_bias(prepared, kind: Any) -> None:
    """With gradients and without, under autocast or not, of another type or another shape."""
    how: dict[str, Any] = HOW if kind is torch.float32 else {"padding": 1}
    layer = winolab.torch.Conv2d(4, 8, 3, **how)
    theirs = torch.nn.Conv2d(4, 8, 3, padding=1)
    theirs.load_state_dict(layer.state_dict())
    most = 1e-4 if kind is torch.float32 else 0.1
    for _ in range(4):
        x = drawn()[0].detach()
        with torch.autocast("cpu", dtype=kind, enabled=kind != torch.float32):
            found = [module(x) for module in (layer, theirs)]
            with torch.no_grad():
                found += [module(x) for module in (layer, theirs)]
        wanted = [tuple(module.parameters()) for module in (layer, theirs)]
        found += [v for y, of in zip(found, wanted, strict=False)
                  for v in torch.autograd.grad(y.float().square().sum(), of)]  # fmt: skip
        assert found[0].dtype == kind
        for ours, due in zip((*found[:4:2], *found[4:6]), (*found[1:4:2], *found[6:]), strict=True):
            torch.testing.assert_close(ours.float(), due.float(), rtol=most, atol=100 * most)
    layer.bias = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"bias has shape \(1,\); expected \(8,\)"):
        layer(x)
    layer.bias = torch.nn.Parameter(torch.ones(8, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"bias has dtype torch\.float64 and the result"):
        layer(x)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # dual_level's own
def test_whatever_looks_on_is_asked(prepared) -> None:
    """Modes, transforms, tangents and subclasses see what plain calls go past."""

    class Noted(TorchDispatchMode):
        seen: ClassVar[list[str]] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Marked(torch.Tensor):
        pass

    x, w = (v.detach() for v in drawn())
    due = THEIRS(x, w)
    for _ in range(4):
        torch.testing.assert_close(OURS(x, w), due, rtol=1e-4, atol=1e-4)
    with Noted():
        OURS(x, w)
    assert "winolab.conv_forward.default" in Noted.seen
    many = torch.func.vmap(OURS, (0, None))(torch.stack([x, x]), w)
    torch.testing.assert_close(many, torch.stack([due, due]), rtol=1e-4, atol=1e-4)
    _, tangent = torch.func.jvp(lambda v: OURS(v, w), (x,), (x,))
    torch.testing.assert_close(tangent, due, rtol=1e-4, atol=1e-4)
    assert type(OURS(x.as_subclass(Marked), w)) is Marked
    with torch.profiler.profile() as profiled:
        OURS(x, w)
    assert "winolab::conv_forward" in {event.name for event in profiled.events()}


def test_a_batch_of_gradients_at_once(prepared) -> None:
    pair = drawn()
    upstream = tensors((3, 2, 8, 6, 5), dtype=torch.float32)[0]
    for _ in range(4):
        agree(pair)
    for ours, theirs in zip(
        *(torch.autograd.grad(by(*pair), pair, upstream, is_grads_batched=True)
          for by in (OURS, THEIRS)), strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_graph_is_gone_once_it_was_used(prepared) -> None:
    for _ in range(4):
        x, w = drawn()
        y = OURS(x, w).sum()
        y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    y = OURS(x, w).sum()
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_threads_share_a_call(prepared) -> None:
    pair = drawn()
    due = agree(pair)
    for _ in range(3):
        agree(pair)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: gradients(OURS, pair), range(16)))
    for each in found:
        assert all(torch.equal(a, b) for a, b in zip(each, due, strict=True))


@pytest.mark.parametrize("prepared", ["native"], indirect=True)
def test_what_the_driver_refuses_is_raised(prepared, monkeypatch) -> None:
    pair = drawn()
    for _ in range(4):
        agree(pair)
    y = OURS(*pair)
    monkeypatch.setattr(Launch, "status", 700)
    with pytest.raises(RuntimeError, match="the driver says 700"):
        OURS(*pair)
    with pytest.raises(RuntimeError, match="the driver says 700"):
        torch.autograd.grad(y, pair, torch.ones_like(y))
    monkeypatch.setattr(Launch, "status", 0)
    agree(pair)


@pytest.mark.parametrize("prepared", ["native"], indirect=True)
def test_what_gradients_by_python_raise_is_raised(prepared, monkeypatch) -> None:
    pair = drawn()
    for _ in range(4):
        agree(pair)
    y = OURS(*pair)

    def out_of_memory(*arguments: Any) -> Any:
        raise MemoryError("no device memory for 5 B")

    monkeypatch.setattr(derivatives, "gradient", out_of_memory)
    with pytest.raises(MemoryError, match="no device memory for 5 B"):
        torch.autograd.grad(y.sum(), pair, create_graph=True)
