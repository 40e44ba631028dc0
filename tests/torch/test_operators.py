"""The operators in PyTorch's machinery: opcheck, compile, export, autocast, fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
import torch.utils.flop_counter
from torch.autograd import forward_ad

import winolab.torch.operators
from tests.torch.network import Net, tensors
from tests.torch.samples import NAMES, REAL, entry, ours, theirs
from winolab.problem import Problem
from winolab.torch import cpu, derivatives
from winolab.torch.asked import DIRECTIONS, options
from winolab.torch.plain import casting
from winolab.torch.warmup import Recorded

GEOMETRY = ([2, 1], [1, 0, 2, 1], [1, 2], 2)
OPERATORS = torch.ops.winolab


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that")  # opcheck's own
@pytest.mark.parametrize("kind", ["plain", "grad", "channels_last", "named", "alone"])
def test_opcheck_passes(kind: str) -> None:
    x, w = tensors((2, 4, 6, 7), (6, 2, 3, 3))
    if kind == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    geometry: tuple[Any, ...] = GEOMETRY
    if kind == "named":
        geometry = ([1, 1], [1, 1, 1, 1], [1, 1], 2, "winograd:2x2:3x3", "fp32", torch.float32)
    if kind == "alone":
        geometry = (*geometry, *options(None, None, None, True))
    dy = OPERATORS.conv_forward(x, w, *geometry).detach().double()
    if kind != "plain":
        x, w, dy = (v.requires_grad_() for v in (x, w, dy))
    if kind == "named":
        x, w, dy = (v.detach().float() for v in (x, w, dy))
    for name, arguments in (
        ("conv_forward", (x, w)),
        ("conv_backward_data", (dy, w, x.shape)),
        ("conv_backward_filter", (x, dy, w.shape)),
    ):
        how = geometry
        if kind == "named" and name == "conv_backward_filter":
            how = (*geometry[:4], "direct", *geometry[5:])
        torch.library.opcheck(getattr(OPERATORS, name), (*arguments, *how))


@cache
def distinct(name: str) -> list[Any]:
    """The calls of one of NAMES that PyTorch's samples make with their gradients: of forward,
    backward data and filter. Samples that differ in a bias alone make the same."""
    calls = {}
    for sample in entry(name).sample_inputs("cpu", torch.float64, requires_grad=True):
        with Recorded() as recorded:
            ours(name)(sample.input, *sample.args, **sample.kwargs).sum().backward()
        lies = ((v.shape, v.stride()) for _, *operands, _ in recorded.calls for v in operands)
        calls[(*lies, str(recorded.calls[0][-1]))] = recorded.calls
    return list(calls.values())


def taken(name: str) -> Iterator[tuple[str, Any, Any]]:
    """One direction and one dtype of every sample, of every second one where there are many, in
    turn, and its calls: all twelve of each take more than two minutes of a core."""
    every = distinct(name)
    some = every[:: 1 + (len(every) > 7)]
    for turn, calls in enumerate(some, 3 * NAMES.index(name)):
        yield DIRECTIONS[turn % len(DIRECTIONS)], REAL[turn % len(REAL)], calls


@pytest.mark.parametrize("names", [NAMES[:3], NAMES[3:]], ids=["plain", "transposed"])
@pytest.mark.filterwarnings("ignore:.*zero-padded copy")
def test_opcheck_meets_every_dtype_in_every_direction(names: list[str]) -> None:
    every = {name: [what for *what, _ in taken(name)] for name in names}
    for mine in every.values():
        assert {direction for direction, _ in mine} == set(DIRECTIONS)
        assert {dtype for _, dtype in mine} == set(REAL)
    met = {tuple(what) for mine in every.values() for what in mine}
    assert met == set(product(DIRECTIONS, REAL))


@pytest.mark.filterwarnings("ignore:.*zero-padded copy", "ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("name", NAMES)
def test_opcheck_passes_on_pytorch_s_samples(name: str) -> None:
    for direction, dtype, calls in taken(name):
        ((a, b, rest),) = (call for named, *call in calls if named == direction)
        operands = (lying(v, dtype).requires_grad_() for v in (a, b))
        torch.library.opcheck(getattr(OPERATORS, f"conv_{direction}"), (*operands, *rest))


def lying(v: Any, dtype: Any) -> Any:
    """Numbers that lie as a tensor without numbers does; rows may be one and the same."""
    size = 1 + sum((n - 1) * stride for n, stride in zip(v.shape, v.stride(), strict=True))
    return tensors((size,))[0].to(dtype).as_strided(v.shape, v.stride())


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_takes_a_network_whole(dynamic: bool) -> None:
    torch.compiler.reset()
    net = Net()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for size in (8, 9)[: 1 + dynamic]:
        (x,) = tensors((2, 3, size, size), dtype=torch.float32)
        eager = net.gradients(net, x)
        for got, expected in zip(net.gradients(compiled, x), eager, strict=True):
            assert torch.equal(got, expected)
        with torch.no_grad():
            assert torch.equal(compiled(x), eager[0])


def test_a_compiled_network_without_gradients_is_channels_last_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Operands are; results lie as they do uncompiled, whose views they have; with gradients
    nothing is copied."""
    torch.compiler.reset()
    monkeypatch.setattr(winolab.torch.operators, "on_gpu", lambda v: True)
    x, v, w = tensors((2, 3, 8, 9), (4, 3, 3, 3), (5, 4, 3, 3), dtype=torch.float32)
    copies = []

    def counted(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        copies.append(sum(node.target == "contiguous" for node in graph.graph.nodes))
        return graph.forward

    def network(x: torch.Tensor) -> torch.Tensor:
        y = winolab.torch.conv2d(torch.relu(winolab.torch.conv2d(x, v)), w)
        return y if x.stride(1) == 1 else y.view(len(x), -1)

    expected = network(x)
    y = torch.compile(network, fullgraph=True, backend=counted)(x)
    assert torch.equal(y, expected)
    last = x.to(memory_format=torch.channels_last)
    y = torch.compile(network, fullgraph=True, backend=counted)(last)
    assert torch.equal(y.flatten(1), expected)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert copies == [6, 4]
    traced = torch.compile(network, fullgraph=True, backend=counted)(x.requires_grad_())
    assert torch.equal(traced, expected)
    assert copies == [6, 4, 0]


@pytest.mark.skipif(torch.__version__ < "2.13", reason="says nothing of such sizes")
@torch._dynamo.config.patch(capture_scalar_outputs=True)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_sizes_that_only_the_data_tell(name: str, last: bool) -> None:
    """Results lie where the graph takes them to lie."""
    torch.compiler.reset()
    x, w = tensors((2, 4, 9, 2), (4, 4, 3, 2))
    rows = x.movedim(1, -1).contiguous() if last else x

    def call(rows: Any, w: Any, count: Any) -> Any:
        n = count.item()
        torch._check(n >= 0)
        torch._check(n <= 9)
        v = rows[:, :n].movedim(-1, 1) if last else rows[:, :, :n]
        return ours(name)(v, w, padding=1)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    w = w.requires_grad_()
    for n in (5, 2, 9, 1):
        count = torch.tensor(n)
        y, due = (function(rows, w, count) for function in (compiled, call))
        assert torch.equal(y, due)
        assert y.stride() == due.stride()
        if n > 1:
            grads = [torch.autograd.grad(v.square().sum(), w)[0] for v in (y, due)]
            assert torch.equal(*grads)


def test_torch_export_keeps_the_operators() -> None:
    net = Net().eval()
    (x,) = tensors((2, 3, 8, 8), dtype=torch.float32)
    sizes = {"x": {0: torch.export.Dim("batch"), 2: torch.export.Dim("height")}}
    program = torch.export.export(net, (x,), dynamic_shapes=sizes)
    called = [str(node.target) for node in program.graph.nodes if "winolab" in str(node.target)]
    assert called == [f"winolab.conv_{d}.default" for d in ("forward", "forward", "backward_data")]
    for shape in (x.shape, (3, 3, 11, 8)):
        (x,) = tensors(shape, dtype=torch.float32)
        assert torch.equal(program.module()(x), net(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace", "ignore::torch.jit.TracerWarning")
def test_torch_jit_is_refused_in_a_line() -> None:
    """An assertion inside PyTorch had failed."""
    (x,) = tensors((2, 3, 8, 8), dtype=torch.float32)
    with pytest.raises(ValueError, match=r"^torch.jit.trace does not know .* torch.export.export$"):
        torch.jit.trace(Net(), x)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_casts_as_it_does_for_pytorch_s(name: str) -> None:
    sample = next(iter(entry(name).sample_inputs("cpu", torch.float32, requires_grad=True)))
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            arguments = (sample.input, *sample.args)
            got = ours(name)(*arguments, **sample.kwargs)
            assert got.dtype == theirs(name, *arguments, **sample.kwargs).dtype == dtype
            got.float().sum().backward()
            wide = ours(name)(*(v.double() for v in arguments), **sample.kwargs)
            assert wide.dtype == torch.float64  # which autocast leaves
        assert sample.input.grad.dtype == torch.float32


def test_tensors_without_numbers_have_results_without() -> None:
    x, w = (v.to("meta") for v in tensors((2, 4, 8, 8), (6, 4, 3, 3)))
    last = x.to(memory_format=torch.channels_last)
    for v in (x, last):
        y = winolab.torch.conv2d(v, w, padding=1)
        assert (y.device.type, y.shape, y.dtype) == ("meta", (2, 6, 8, 8), torch.float64)
        assert y.is_contiguous() == v.is_contiguous()
    with pytest.raises(ValueError, match="x has 4 channels; w's 4 input channels in 2 group"):
        winolab.torch.conv2d(x, w, groups=2)
    with torch._subclasses.FakeTensorMode() as mode:
        y = winolab.torch.conv2d(*(mode.from_tensor(v) for v in tensors((4, 8, 8), (6, 4, 3, 3))))
    assert y.shape == (6, 6, 6)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", ["conv1d", "conv_transpose2d"])
def test_flops_are_counted_as_pytorch_s_are(name: str, groups: int) -> None:
    """Backwards, too; PyTorch's count of a filter's gradient takes groups for none."""
    n = int(name[-2])
    shape = (4, 6 // groups) if "transpose" in name else (6, 4 // groups)
    x, w = tensors((2, 4, *(8,) * n), (*shape, *(3,) * n))
    how: dict[str, Any] = {"stride": 2, "padding": 1, "groups": groups}

    def count(function: Any, x: Any, w: Any, backwards: bool = False) -> int:
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            y = function(x, w, **how)
            if backwards:
                y.sum().backward()
        return counter.get_total_flops()

    due = count(partial(theirs, name), x, w)
    assert count(ours(name), x, w) == due > 0
    with torch.inference_mode():
        assert count(ours(name), x, w) == due
    direction = "backward_data" if "transpose" in name else "forward"
    layer = partial(winolab.torch.operators.OPERATORS[direction], x, w)
    size = [] if direction == "forward" else [ours(name)(x, w, **how).shape]
    assert count(lambda *_, **__: layer(*size, [2] * n, [1, 1] * n, [1] * n, groups), x, w) == due
    operands = [v.clone().requires_grad_() for v in (x, w)]
    assert count(ours(name), *operands, backwards=True) == 3 * due
    if groups == 1:
        assert count(partial(theirs, name), *operands, backwards=True) == 3 * due


def test_two_runs_give_the_same_bits() -> None:
    """Also where PyTorch is told to refuse what does not."""
    net = Net()
    (x,) = tensors((2, 3, 8, 8), dtype=torch.float32)
    expected = net.gradients(net, x)
    torch.use_deterministic_algorithms(True)
    try:
        again = net.gradients(net, x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(p, q) for p, q in zip(again, expected, strict=True))


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_stands_for_kernels_obeys_pytorch_s_flags(deterministic: bool, monkeypatch) -> None:
    """Those of determinism and of cuDNN's benchmark mode; TF32 is off whatever they say."""
    seen: list[tuple[bool, ...]] = []
    cudnn: Any = torch.backends.cudnn
    direct = cpu._direct

    def noted(*given: Any) -> torch.Tensor:
        told = torch.are_deterministic_algorithms_enabled()
        seen.append((cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, told))
        return direct(*given)

    monkeypatch.setattr(cpu, "_direct", noted)
    x, w = tensors((2, 4, 8, 8), (6, 4, 3, 3))
    problem = Problem.of((2, 8, 8, 4), (6, 3, 3, 4))
    torch.use_deterministic_algorithms(deterministic)
    how = {"enabled": True, "benchmark": not deterministic, "deterministic": deterministic}
    try:
        with cudnn.flags(allow_tf32=True, **how):
            y = cpu.meanwhile("forward", problem, x, w)
            assert cudnn.allow_tf32
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(y, torch.conv2d(x, w))
    assert seen == [(deterministic, not deterministic, False, deterministic)]


def test_gradients_leave_the_dispatcher_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd leaves a key of names out in its nodes before PyTorch 2.12."""
    quick, made = [], derivatives.quick_gradient
    monkeypatch.setattr(
        derivatives, "quick_gradient", lambda *of: [quick.append(of[1]), made(*of)][1]
    )
    x, w = (v.requires_grad_() for v in tensors((2, 4, 6, 6), (6, 4, 3, 3)))
    for on in (False, True):
        with torch.autocast("cpu", enabled=on):
            y = winolab.torch.conv2d(x.float(), w.float())
        y.float().sum().backward()
    assert quick == [0, 1, 0, 1]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_the_dispatcher_is_left_out_only_where_nothing_looks_on() -> None:
    """Plain tensors are spared it, with gradients or not; modes and transforms see operators."""
    x, w = tensors((2, 4, 6, 6), (6, 4, 3, 3))

    def plain(a: torch.Tensor, b: torch.Tensor) -> bool:
        return casting(a, b) is not None

    assert casting(x, torch.nn.Parameter(w)) == frozenset()
    with torch.no_grad():
        assert casting(x, w) == frozenset()
    with torch.autocast("cpu"):
        assert casting(x, w) == {"cpu"}
    with torch.inference_mode():
        assert casting(x, w) == casting(x + 1, w) == frozenset()
        with torch.autocast("cpu"):
            assert casting(x + 1, w) == {"cpu"}
    for mode in (
        torch._subclasses.FakeTensorMode(),
        torch.device("cpu"),
        torch.utils.flop_counter.FlopCounterMode(display=False),
        forward_ad.dual_level(),
    ):
        with mode:
            assert not plain(x, w)
    seen = []
    torch.vmap(lambda v: seen.append(plain(v, w) or plain(x, w)) or v)(x)
    torch.func.grad(lambda v: seen.append(plain(v, w) or plain(x, w)) or v.sum())(x)
    assert seen == [False, False]
    negated = torch.complex(x, x).conj().imag
    for other in (x.to("meta"), negated, x.to_sparse()):
        assert not plain(other, w)
    with torch.inference_mode():
        single, filters = x.float(), w.float()
        y = winolab.torch.conv2d(single, filters)
        assert y.is_inference()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = winolab.torch.conv2d(single, filters)
        assert (cast.dtype, cast.is_inference()) == (torch.bfloat16, True)
        halves = winolab.torch.conv2d(single.bfloat16(), filters.bfloat16())
        assert torch.equal(cast, halves)
    assert torch.equal(winolab.torch.conv2d(negated, w), winolab.torch.conv2d(-x, w))
