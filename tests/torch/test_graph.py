"""winolab.conv_forward and its gradients of torch tensors on the CPU, with derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.exc import Unsupported

import winolab
from tests.gpu.support.turns import turns
from tests.torch.network import tensors
from winolab import calls
from winolab.gpu.runtime.arrays import TORCH
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.arithmetic.split import Scale
from winolab.torch import graph
from winolab.torch.asked import DIRECTIONS

SHAPES = {"x": (2, 6, 9, 4), "w": (3, 3, 3, 4), "y": (2, 6, 8, 3)}
OPERANDS = {"forward": "xw", "backward_data": "yw", "backward_filter": "xy"}
SIZES = {"forward": "", "backward_data": "x", "backward_filter": "w"}
PADDING = ((1, 1), (1, 0))
HOW: dict[str, Any] = {"padding": PADDING, "algorithm": "winograd:2x2:3x3"}


def arranged(v: Any, layout: str) -> Any:
    return v.movedim(-1, 1) if layout == "channels_first" else v


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_tensors_that_require_grad_have_the_same_bits_and_gradients(direction, layout) -> None:
    """Results are the reference's of NumPy arrays; derivatives twice, those of differences."""
    first, second = OPERANDS[direction]
    a, b = (arranged(v, layout) for v in tensors(SHAPES[first], SHAPES[second]))
    sizes = [arranged(torch.empty(SHAPES[n]), layout).shape for n in SIZES[direction]]
    how: dict[str, Any] = {"padding": PADDING, "layout": layout}
    how["algorithm"] = "direct" if direction == "backward_filter" else "winograd:2x2:3x3"
    call = getattr(winolab, f"conv_{direction}")
    plain = call(a.numpy(), b.numpy(), *sizes, **how)
    without = call(a, b, *sizes, **how)
    assert type(without) is torch.Tensor
    a, b = a.requires_grad_(), b.requires_grad_()
    result = call(a, b, *sizes, **how)
    for got in (without, result.detach()):
        assert (got.numpy() == plain).all()
    assert torch.autograd.gradcheck(lambda *v: call(*v, *sizes, **how), (a, b), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *v: call(*v, *sizes, **how), (a, b), fast_mode=True)
    with torch.no_grad():
        assert not call(a, b, *sizes, **how).requires_grad


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated")  # dynamo's own
@pytest.mark.parametrize(
    ("how", "tracked", "kept"),
    turns(
        [
            {},
            {"tolerance": 1e-4},
            {"bias": torch.ones(3), "activation": "relu"},
            {"activation": "silu"},
        ],
        [False, True],
        [False, True],
        of=3,
    ),
    ids=str,
)
def test_compiled_code_has_the_operators(
    how: Any, tracked: bool, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without gradients an error of tracing had been raised, and the graph was not broken. Nor is
    a call looked for that was kept for tensors on a GPU, whose addresses nothing traces."""
    if kept:  # a call on a GPU, which asks graph whether it is tracked
        assert TORCH.compiling is graph.is_dynamo_compiling
        monkeypatch.setitem(calls.described_by, torch.Tensor, TORCH.layout_key)
    torch.compiler.reset()
    x, w = tensors(SHAPES["x"], SHAPES["w"], dtype=torch.float32)
    w.requires_grad_(tracked)

    def call(x: Any, w: Any) -> Any:
        return winolab.conv_forward(x, w, padding=1, **how)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    y, due = compiled(x, w), call(x, w)
    assert torch.equal(y, due)
    assert y.requires_grad == tracked
    if tracked:
        grads = [torch.autograd.grad(v.square().sum(), w)[0] for v in (y, due)]
        assert torch.equal(*grads)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated")  # dynamo's own
@pytest.mark.parametrize("kept", [False, True])
def test_compiled_code_refuses_what_it_cannot_fill(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept:
        monkeypatch.setitem(calls.described_by, torch.Tensor, TORCH.layout_key)
    torch.compiler.reset()
    x, w = tensors(SHAPES["x"], SHAPES["w"], dtype=torch.float32)
    due = winolab.conv_forward(x, w)
    into = torch.compile(lambda x, w: winolab.conv_forward(x, w, out=due), backend="aot_eager")
    with pytest.raises(ValueError, match=r"^torch.compile knows no out and no prepared filter"):
        into(x, w)


def named(**how: Any) -> Any:
    """The three convolutions as they are asked for, the first beside the default."""
    rest: dict[str, Any] = how | {"algorithm": "direct"}

    def call(x: Any, w: Any) -> Any:
        y = winolab.conv_forward(x, w, **how) + winolab.conv_forward(x, w)
        dx = winolab.conv_backward_data(y, w, **how)
        return y, dx, winolab.conv_backward_filter(x, y, w.shape, **rest)

    return call


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize(
    ("how", "dynamic"),
    [
        ({"algorithm": "winograd:4x4:3x3"}, True),
        ({"algorithm": winolab.parse_algorithm("gamma:8:6:3@paper")}, None),
        ({"precision": arithmetic("fp16@hopper")}, True),
        ({"precision": np.dtype("float64")}, None),
    ],
    ids=("text", "value", "arithmetic", "dtype"),
)
def test_compiled_code_has_what_is_named(how: Any, dynamic: Any) -> None:
    """How texts are read is not traced: graphs were broken there, and refused where whole."""
    torch.compiler.reset()
    call = named(**how)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for size in (9, 12):
        x, w = tensors((2, size, size, 4), SHAPES["w"], dtype=torch.float32)
        found, due = compiled(x, w), call(x, w)
        assert all(map(torch.equal, found, due))
        assert not torch.equal(due[0], 2 * winolab.conv_forward(x, w))


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize("scale", ["11:12", (11, 12), Scale.parse("peaks:3")], ids=str)
def test_compiled_code_has_scales(scale: Any) -> None:
    torch.compiler.reset()
    x, w = tensors(SHAPES["x"], SHAPES["w"], dtype=torch.float32)
    how: Any = {"scale": scale, "precision": "fp32_split", "algorithm": "gamma:8:6:3"}

    def call(x: Any, w: Any) -> Any:
        return winolab.conv_forward(x, w, **how)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, w), call(x, w))


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"algorithm": "winogrd:4x4:3x3"}, ValueError, "unknown algorithm 'winogrd:4x4:3x3'; "),
        ({"algorithm": 5}, TypeError, "algorithm is of type int; expected an Algorithm or a text"),
        ({"precision": 5}, TypeError, "precision is an int; expected a name, a dtype or an A"),
        ({"scale": "x"}, ValueError, "scale 'x'"),
        ({"algorithm": "direct", "tolerance": 1e-5}, ValueError, "algorithm direct and tolerance"),
    ],
    ids=str,
)
def test_compiled_code_refuses_in_a_line(how: Any, error: Any, said: str) -> None:
    """Where a graph must be whole, dynamo's words stand around it."""
    x, w = tensors(SHAPES["x"], SHAPES["w"], dtype=torch.float32)
    for whole in (False, True)[: 1 + ("scale" in how)]:
        torch.compiler.reset()
        compiled = torch.compile(
            lambda x, w: winolab.conv_forward(x, w, **how), fullgraph=whole, backend="aot_eager"
        )
        refusal = Unsupported if whole else error
        with pytest.raises(refusal, match=said if whole else f"^{said}") as refused:
            compiled(x, w)
        assert whole or "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # dual_level's own
def test_tangents_pass() -> None:
    x, w, dx, dw = tensors(*(SHAPES[n] for n in "xwxw"))
    expected = winolab.conv_forward(dx, w, **HOW) + winolab.conv_forward(x, dw, **HOW)
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        y = winolab.conv_forward(forward.make_dual(x, dx), forward.make_dual(w, dw), **HOW)
        tangent: Any = forward.unpack_dual(y).tangent
    assert torch.equal(tangent, expected)


def test_every_option_reaches_the_operator() -> None:
    x, w = tensors(SHAPES["x"], SHAPES["w"], dtype=torch.float32)
    how: dict[str, Any] = HOW | {"precision": "fp32_split", "scale": "11:12", "out_dtype": "f8"}
    expected = winolab.conv_forward(x.numpy(), w.numpy(), **how)
    got = winolab.conv_forward(x, w.requires_grad_(), **how)
    assert got.dtype == torch.float64
    assert (got.detach().numpy() == expected).all()
    assert not (expected == winolab.conv_forward(x.numpy(), w.detach().numpy(), **HOW)).all()
    with pytest.raises(ValueError, match="out_dtype float32 or bfloat16"):
        winolab.conv_backward_filter(
            1e4 * x.half(), tensors(SHAPES["y"])[0].half().requires_grad_() + 1e4, SHAPES["w"],
            padding=PADDING, on_range="raise",
        )  # fmt: skip


def test_a_wider_result_has_gradients_of_its_operands_type() -> None:
    x, w = (v.half().requires_grad_() for v in tensors(SHAPES["x"], SHAPES["w"]))
    y = winolab.conv_forward(x, w, padding=PADDING, out_dtype=torch.float32)
    y.sum().backward()
    assert y.dtype == torch.float32
    assert (x.grad.dtype, w.grad.dtype) == (torch.float16, torch.float16)


def test_autocast_leaves_what_is_asked_for_here() -> None:
    x, w = tensors(SHAPES["x"], SHAPES["w"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = winolab.conv_forward(x, w.requires_grad_(), **HOW)
    assert y.dtype == torch.float64


def test_what_has_no_place_in_a_graph_is_refused() -> None:
    x, w, y = tensors(*(SHAPES[n] for n in "xwy"))
    prepared = winolab.prepare_filter(w, x.shape, padding=PADDING)
    expected = winolab.conv_forward(x, w, padding=PADDING)
    assert torch.equal(winolab.conv_forward(x, prepared, padding=PADDING), expected)
    w.requires_grad = True
    with pytest.raises(ValueError, match=r"w requires grad, which a result in out has no place"):
        winolab.conv_forward(x, w, padding=PADDING, out=y)
    with pytest.raises(ValueError, match=r"w requires grad, and a prepared filter has none"):
        winolab.prepare_filter(w, x.shape, padding=PADDING)
    x.requires_grad = True
    with pytest.raises(ValueError, match=r"x requires grad, for which the prepared filter is of"):
        winolab.conv_forward(x, prepared, padding=PADDING)
    with pytest.raises(TypeError, match="w is a ndarray; expected a torch tensor like the other"):
        winolab.conv_forward(x, w.detach().numpy(), padding=PADDING)


def test_results_go_where_the_caller_wants_them() -> None:
    x, w, y = tensors(*(SHAPES[n] for n in "xwy"))
    product = (y * y.clone().requires_grad_()).sum()
    assert winolab.conv_forward(x, w, padding=PADDING, out=y) is y
    assert torch.equal(y, winolab.conv_forward(x, w, padding=PADDING))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    mixed = winolab.conv_forward(x.numpy(), w, padding=PADDING)
    assert isinstance(mixed, np.ndarray)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_what_dlpack_says_nothing_of_is_written_too(dtype, monkeypatch) -> None:
    """PyTorch 2.8's DLPack has no word of whether memory may be written: NumPy thinks not."""
    x, w, y = tensors(*(SHAPES[n] for n in "xwy"), dtype=dtype)
    expected = winolab.conv_forward(x, w, padding=PADDING, activation="silu")
    empty = winolab.conv_forward(x[:0], w, padding=PADDING)
    monkeypatch.setattr(torch.Tensor, "__dlpack__", lambda v: torch._C._to_dlpack(v))
    assert winolab.conv_forward(x, w, padding=PADDING, activation="silu", out=y) is y
    assert torch.equal(y, expected)
    with_graph = winolab.conv_forward(x, w.requires_grad_(), padding=PADDING, activation="silu")
    assert torch.equal(with_graph, expected)
    out = torch.empty_like(empty)
    assert winolab.conv_forward(x[:0], w.detach(), padding=PADDING, out=out) is out


def test_views_that_negate_or_conjugate_count_as_what_they_show() -> None:
    x, w = tensors(SHAPES["x"], SHAPES["w"])
    negated = torch.complex(w.new_zeros(x.shape), x).conj().imag
    expected = winolab.conv_forward(x, w, padding=PADDING)
    assert torch.equal(winolab.conv_forward(negated, w, padding=PADDING), -expected)
    both = torch.complex(x, x)
    got = winolab.conv_forward(both.conj(), torch.complex(w, w), padding=PADDING)
    plain = winolab.conv_forward(both.conj().resolve_conj().numpy(), torch.complex(w, w).numpy(),
                                 padding=PADDING)  # fmt: skip
    assert (got.numpy() == plain).all()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor|The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda v: v.to("meta"), "a meta tensor has no numbers that this could read: winolab.tor"),
        (torch._subclasses.FakeTensorMode().from_tensor, "a FakeTensor has no numbers that this"),
        (lambda v: v.to_sparse(), "a tensor is torch.sparse_coo; expected a strided tensor: cal"),
        (
            lambda v: torch.nested.nested_tensor([v]),
            "a tensor is nested; expected a strided tensor",
        ),
        (
            lambda v: torch.quantize_per_tensor(v.float(), 1, 0, torch.qint8),
            "a tensor is quantized",
        ),
        (lambda v: v.to(torch.float8_e4m3fn), "x is a torch Tensor of torch.float8_e4m3fn, which "),
    ],
)
def test_tensors_without_numbers_are_refused_in_a_line(made, said: str) -> None:
    x, w = tensors(SHAPES["x"], SHAPES["w"])
    with pytest.raises(TypeError, match=said) as refused:
        winolab.conv_forward(made(x), w)
    assert "\n" not in str(refused.value)
    for transform in (
        lambda: torch.vmap(lambda v: winolab.conv_forward(v[None], w))(x),
        lambda: torch.func.grad(lambda v: winolab.conv_forward(v, w).sum())(x),
    ):
        with pytest.raises(TypeError, match="conv2d and its siblings serve torch"):
            transform()
