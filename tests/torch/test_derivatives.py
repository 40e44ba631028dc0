"""Derivatives and batches of winolab.torch's functions: every transform's values are PyTorch's."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._dynamo import compiled_autograd
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import winolab.torch
from tests.support.problems import integers, problems
from tests.torch.network import Net, tensors
from tests.torch.samples import NAMES, entry, ours, theirs
from tests.torch.transforms import GROUPS, SHAPES, convolve, transforms
from winolab.problem import in_layout, shapes
from winolab.torch.asked import DIRECTIONS, Options
from winolab.torch.derivatives import gradient
from winolab.torch.operators import OPERATORS, forward

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")


@given(problems(), st.sampled_from(DIRECTIONS), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_gradients_are_adjoint(problem, direction, seed) -> None:
    """⟨g, f(a, b)⟩ = ⟨the gradient of a, a⟩ and ⟨that of b, b⟩, exactly on small integers."""
    a, b, g = (
        torch.from_numpy(integers(in_layout(s, "channels_first"), seed + i).astype(float))
        for i, s in enumerate(shapes(direction, problem))
    )
    a, b = a.requires_grad_(), b.requires_grad_()
    padding = [end for pair in problem.padding for end in pair]
    geometry = (problem.stride, padding, problem.dilation, problem.groups)
    size = () if direction == "forward" else (g.shape,)
    y = OPERATORS[direction](a, b, *size, *geometry)
    total = (g * y).sum()
    first, second = torch.autograd.grad(total, (a, b))
    assert total == (first * a).sum() == (second * b).sum()


@pytest.mark.filterwarnings("ignore:Please use `torch.vmap`:FutureWarning")  # 2.6's gradcheck's own
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_those_of_differences(name: str) -> None:
    """First and second ones, forward and backward, batched too, of a sample of PyTorch's."""
    sample = list(entry(name).sample_inputs("cpu", torch.float64, requires_grad=True))[1]
    given = (sample.input, *sample.args)
    inputs = tuple(v for v in given if isinstance(v, torch.Tensor) and v.requires_grad)
    assert len(inputs) >= 2
    call = partial(lambda *v: ours(name)(*v, *given[len(v) :], **sample.kwargs))
    assert gradcheck(
        call,
        inputs,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=True,
    )
    assert gradgradcheck(call, inputs, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose1d"])
def test_complex_tensors_have_derivatives_and_autocast_leaves_them(name: str) -> None:
    (sample, *_) = entry(name).sample_inputs("cpu", torch.complex128, requires_grad=True)
    x, w = sample.input, sample.args[0]

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ours(name)(x, w, **sample.kwargs)

    assert gradcheck(call, (x, w), check_forward_ad=True, fast_mode=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(call(x, w), call(x, w).to(torch.complex128))
    got = torch.vmap(call, (0, None))(torch.stack([x, x.conj()]), w)
    assert torch.allclose(got[1], theirs(name, x.conj(), w, **sample.kwargs), rtol=1e-13)


TRANSFORMS = transforms(*tensors(*SHAPES))


@pytest.mark.parametrize("groups", [1, GROUPS])
@pytest.mark.parametrize("kind", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_give_pytorch_s_values(transform: str, kind: str, groups: int) -> None:
    apply = TRANSFORMS[transform]
    functions = ours(kind), partial(theirs, kind)
    got, expected = (apply(partial(convolve, kind, groups, f)) for f in functions)
    for p, q in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        assert p.shape == q.shape
        # as many sums of FP64 products in a row as derivatives, of fewer than 2^9 terms
        assert float((p - q).abs().max()) <= 2.0**-40 * float(q.abs().max())
        assert float(q.abs().max()) > 0


def test_derivatives_are_asked_for_as_the_result_was() -> None:
    """But for what holds for that alone: its dtype, scales of its operands, tiles of gradients."""
    asked = []
    stand_ins = {each: lambda *a, each=each: asked.append((each, a)) for each in DIRECTIONS}
    how = ("gamma:8:6:3", "fp32_ffma", torch.float16, 1 << 20, "raise", "11:18", "1e-5")
    geometry = ([1, 1], [1, 1, 1, 1], [1, 1], 1)
    arrays = torch.zeros(2), torch.zeros(3), torch.zeros(4)
    for direction in DIRECTIONS:
        size = () if direction == "forward" else ((5,),)
        for operand in range(2):
            gradient(stand_ins, operand, arrays, direction, (*size, *geometry, *how))
            wanted, arguments = asked.pop()
            tile = "direct" if "backward_filter" in (direction, wanted) else how[0]
            expected = Options(tile, how[1], None, how[3], how[4], None, how[6])
            assert Options(*arguments[-len(expected.given()) :]) == expected
            if wanted != "forward":
                assert arguments[2] == arrays[operand].shape


TANGENTS = {
    "dual": lambda f, x, w, u, v: dual(f, x, w, u, v),
    "jvp": lambda f, x, w, u, v: torch.func.jvp(f, (x, w), (u, v))[1],
    "jvp of w": lambda f, x, w, u, v: torch.func.jvp(partial(f, x), (w,), (v,))[1],
    "jvp of grad": lambda f, x, w, u, v: torch.func.jvp(
        torch.func.grad(lambda w: (f(x, w) ** 3).sum()), (w,), (v,)
    )[1],
    "jacfwd": lambda f, x, w, u, v: torch.func.jacfwd(partial(f, x[:1]))(w),
}


def dual(f: Any, x: Any, w: Any, u: Any, v: Any) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, u), w)).tangent


@pytest.mark.parametrize("kind", TANGENTS)
def test_compiled_code_has_tangents(kind: str) -> None:
    """A graph enters a level of forward differentiation past torch.autograd.forward_ad: tangents
    were lost without a word."""
    torch.compiler.reset()
    operands = tensors((2, 2, 4, 4), (2, 2, 2, 2), (2, 2, 4, 4), (2, 2, 2, 2))
    for name in ("conv2d", "conv_transpose2d")[: 1 + (kind == "jvp")]:
        due = TANGENTS[kind](partial(theirs, name), *operands)
        found = torch.compile(partial(TANGENTS[kind], ours(name)), backend="eager")(*operands)
        # fewer than 2^9 sums of FP64 products, as below
        assert float((found - due).abs().max()) <= 2.0**-40 * float(due.abs().max())
    level = torch._C._enter_dual_level()
    try:
        x, w, u, _ = operands
        known: Any = torch._VF
        dual_x = known._make_dual(x, u, level=level)
        y = OPERATORS["forward"](dual_x, w, [1, 1], [0] * 4, [1, 1], 1)
        assert known._unpack_dual(y, level=level).tangent is not None
    finally:
        torch._C._exit_dual_level(level)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that")  # its own
def test_compiled_autograd_takes_the_nodes() -> None:
    """Their arguments differ where all sizes are the same."""
    x, w = (v.requires_grad_() for v in tensors((2, 4, 6, 5), (8, 4, 3, 3)))

    def loss(padding: tuple[int, ...], algorithm: str | None) -> Any:
        y = forward(x, w, (1, 1), padding, (1, 1), 1, algorithm)
        return y.square().sum()

    for asked in (((1, 0, 0, 1), None), ((0, 1, 1, 0), "winograd:2x2:3x3")):
        due = torch.autograd.grad(loss(*asked), (x, w))
        x.grad = w.grad = None
        with compiled_autograd._enable(torch.compile(backend="eager")):
            loss(*asked).backward()
        assert all(torch.equal(v.grad, right) for v, right in zip((x, w), due, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_compute_again(reentrant: bool) -> None:
    net = Net()
    (x,) = tensors((2, 3, 8, 8), dtype=torch.float32)
    expected = net.gradients(net, x)
    x.requires_grad_()
    got = net.gradients(lambda v: checkpoint(net, v, use_reentrant=reentrant), x)
    assert all(torch.equal(p, q) for p, q in zip(got, expected, strict=True))


def test_results_may_be_changed_in_place() -> None:
    x, w = tensors((2, 4, 6, 6), (6, 4, 3, 3))
    for v in (x, x.to(memory_format=torch.channels_last)):
        v = v.requires_grad_()
        torch.relu_(winolab.torch.conv2d(v, w)).sum().backward()
        with torch.no_grad():
            torch.relu_(winolab.torch.conv2d(v, w))
        with torch.inference_mode():
            torch.relu_(winolab.torch.conv2d(v, w))


def test_distributed_data_parallel_averages_gradients(tmp_path) -> None:
    """In one process: its hooks see every parameter's gradient."""
    distributed = torch.distributed
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        net = Net()
        (x,) = tensors((2, 3, 8, 8), dtype=torch.float32)
        expected = net.gradients(net, x)
        got = net.gradients(torch.nn.parallel.DistributedDataParallel(net), x)
        assert all(torch.equal(p, q) for p, q in zip(got, expected, strict=True))
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("how", [{}, {"tolerance": 1e-5}], ids=str)
def test_a_loss_scaler_finds_infinite_gradients(how: dict[str, Any]) -> None:
    """A layer with a tolerance raised at the first, which PyTorch's skips and scales less."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3))
    x = torch.rand(2, 3, 9, 9)
    winolab.torch.convert(model, x, **how)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # pyright: ignore
    scaler.scale(model(x).square().sum()).backward()
    assert not all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**126
    assert all(map(torch.equal, before, model.parameters()))
