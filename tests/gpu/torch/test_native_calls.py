"""Calls by Python and past it, of CPU tensors that are taken for a GPU's: who looks on is asked,
and what goes wrong is said."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

torch: Any = pytest.importorskip("torch")

from torch._dynamo import compiled_autograd  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import winolab.torch  # noqa: E402
from tests.gpu.support.steps import (  # noqa: E402
    HOW,
    OURS,
    THEIRS,
    Launch,
    agree,
    drawn,
    gradients,
    kept,
)
from tests.torch.network import tensors  # noqa: E402
from winolab.torch import derivatives, operators, plain  # noqa: E402


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
@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # 2.11's
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


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # dual_level's own
def test_tangents_that_compiled_code_tells_no_level_of(prepared) -> None:
    """A graph enters a level of forward differentiation past torch.autograd.forward_ad."""
    x, w = (v.detach() for v in kept())
    with torch.no_grad():
        for _ in range(4):
            OURS(x, w)
    before = Launch.native
    for name in ("conv2d", "conv_transpose2d"):

        def tangent(where: Any, how: Any, name: str = name) -> Any:
            v = w if name == "conv2d" else w.transpose(0, 1)
            return torch.func.jvp(lambda x: getattr(where, name)(x, v, **how), (x,), (x,))[1]

        due = tangent(torch.nn.functional, {"padding": 1})
        found = torch.compile(tangent, backend="eager", fullgraph=True)(winolab.torch, HOW)
        torch.testing.assert_close(found, due, rtol=1e-4, atol=1e-4)
    level = torch._C._enter_dual_level()
    try:
        operator = operators.OPERATORS["forward"]
        arguments = [1, 1], [1, 1, 1, 1], [1, 1], 1, HOW["algorithm"], HOW["precision"]
        torch.testing.assert_close(operator(x, w, *arguments), THEIRS(x, w), rtol=1e-4, atol=1e-4)
        y = operator(torch._make_dual(x, x, level=level), w, *arguments)
        tangent = torch._VF._unpack_dual(y, level=level).tangent
        torch.testing.assert_close(tangent, THEIRS(x, w), rtol=1e-4, atol=1e-4)
    finally:
        torch._C._exit_dual_level(level)
    assert bool(Launch.native > before) == bool(plain.NATIVE.module)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that")  # its own
def test_compiled_autograd_takes_its_nodes(prepared) -> None:
    """Those that were recorded past Python, too, with arguments that differ where shapes do not."""
    x, w = kept()
    geometries = (1, 0, 0, 1), (0, 1, 1, 0), (1, 0, 0, 1)
    how = (1, 1), 1, HOW["algorithm"], HOW["precision"]

    def y(padding: tuple[int, ...]) -> Any:
        return operators.forward(x, w, (1, 1), padding, *how)

    for padding in geometries:
        for _ in range(4):
            due = torch.autograd.grad(y(padding).square().sum(), (x, w))
        loss = y(padding).square().sum()
        node = loss.grad_fn.next_functions[0][0].next_functions[0][0]
        assert hasattr(node, "saved_tensors") == (plain.NATIVE.module is None)
        x.grad = w.grad = None
        with compiled_autograd._enable(torch.compile(backend="eager")):
            loss.backward()
        for got, right in zip((x.grad, w.grad), due, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prepared", ["native"], indirect=True)
def test_operators_go_past_python_too(prepared, monkeypatch) -> None:
    """As code calls them that torch.compile makes, with lists and without gradients."""
    pair = kept()
    y, *due = agree(pair)
    arguments = [1, 1], [1, 1, 1, 1], [1, 1], 1, HOW["algorithm"], HOW["precision"]
    x, w = (v.detach() for v in pair)
    operator, asked = operators.OPERATORS["forward"], []
    monkeypatch.setattr(
        operators, "asked_by", lambda *given: [asked.append(given), asked_by(*given)][1]
    )
    before = Launch.native
    assert torch.equal(operator(x, w, *arguments), y)
    assert Launch.native > before
    again = operator(*pair, *arguments)
    for mine, right in zip(torch.autograd.grad(again, pair, torch.ones_like(y)), due, strict=True):
        assert torch.equal(mine, right)
    assert not asked
    usual = (None, None, "fallback", None, None)  # all that the schema has, in its own words
    assert torch.equal(operator(x, w, *arguments, *usual), y)
    assert not asked
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert operator(x, w, *arguments[:4]).dtype == torch.bfloat16
    assert asked  # of what is not kept


@pytest.mark.parametrize("prepared", ["native"], indirect=True)
def test_operators_that_are_not_known_are_python_s(prepared) -> None:
    """Other arguments and sizes, derivatives of gradients, and all of it once it is withdrawn."""
    pair = kept()
    y, *_ = agree(pair)
    operator = operators.OPERATORS["forward"]
    geometry = [1, 1], [1, 1, 1, 1], [1, 1], 1
    arguments = (*geometry, HOW["algorithm"], HOW["precision"])
    before = Launch.native
    x, w = (v.detach() for v in pair)
    other = operator(x[:1], w, *arguments)
    torch.testing.assert_close(other, y[:1].detach(), rtol=1e-4, atol=1e-4)
    shifted = operator(x, w, [1, 1], [0, 2, 1, 1], *arguments[2:])
    assert shifted.shape == y.shape
    found = torch.autograd.grad(operator(*pair, *arguments).square().sum(), pair, create_graph=True)
    twice = torch.autograd.grad(sum(v.square().sum() for v in found), pair)
    assert all(v.abs().sum() > 0 for v in twice)
    compiled = torch.compile(lambda a: operator(a, w, *arguments), backend="aot_eager")
    for _ in range(2):  # the first call is inside PyTorch's compiler, which others look on at
        found = compiled(x)
    assert torch.equal(found, y)
    assert Launch.native > before
    plain.NATIVE.withdraw()
    before = Launch.native  # and on the CPU it is PyTorch's
    torch.testing.assert_close(operator(x, w, *arguments), y.detach(), rtol=1e-4, atol=1e-4)
    assert Launch.native == before


asked_by = operators.asked_by


def test_a_batch_of_gradients_at_once(prepared) -> None:
    pair = kept()
    upstream = tensors((3, 2, 8, 6, 5), dtype=torch.float32)[0]
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
    pair = kept()
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
    pair = kept()
    y = OURS(*pair)

    def out_of_memory(*arguments: Any) -> Any:
        raise MemoryError("no device memory for 5 B")

    monkeypatch.setattr(derivatives, "gradient", out_of_memory)
    with pytest.raises(MemoryError, match="no device memory for 5 B"):
        torch.autograd.grad(y.sum(), pair, create_graph=True)
