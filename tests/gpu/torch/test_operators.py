"""winolab.torch's operators on a GPU: PyTorch's samples, transforms, graphs and compilers."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.torch.network import Net, tensors  # noqa: E402
from tests.torch.samples import (  # noqa: E402
    DTYPES,
    NAMES,
    check,
    exact_and_bound,
    ours,
    samples,
    theirs,
)
from tests.torch.transforms import GROUPS, SHAPES, convolve, transforms  # noqa: E402
from winolab.torch.asked import DIRECTIONS  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),
]
SERVED = [dtype for dtype in DTYPES if dtype != torch.float64]  # which the CPU alone serves
# What is picked is predicted to err at most so many times as much as direct sums do.
ADMITTED = 4


def near(got: Any, exact: Any, most: float = 1e-5) -> bool:
    got, exact = got.detach().double(), exact.detach().double()
    return got.shape == exact.shape and float((got - exact).norm()) <= most * float(exact.norm())


@pytest.mark.parametrize("dtype", SERVED, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_pytorch_s_samples(name: str, dtype: Any) -> None:
    """All of them are served: nothing about their geometry is refused."""
    count = 0
    for sample in samples(name, dtype, "cuda"):
        exact, bound = exact_and_bound(name, sample.input, *sample.args, **sample.kwargs)
        got = ours(name)(sample.input, *sample.args, **sample.kwargs)
        check(got, exact, ADMITTED * bound, dtype)
        count += 1
    assert count > 8


@pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_opcheck_passes(direction: str, last: bool) -> None:
    """What is said of results without numbers is so: shapes, dtypes and memory order."""
    shapes = {"x": (2, 16, 9, 10), "w": (24, 16, 3, 3), "y": (2, 24, 9, 10)}
    names = {"forward": "xw", "backward_data": "yw", "backward_filter": "xy"}[direction]
    a, b = (v.cuda() for v in tensors(*(shapes[n] for n in names), dtype=torch.float32))
    if last:
        a, b = (v.to(memory_format=torch.channels_last) for v in (a, b))
    size = {"backward_data": [shapes["x"]], "backward_filter": [shapes["w"]]}.get(direction, [])
    geometry = ([1, 1], [1, 1, 1, 1], [1, 1], 1)
    a, b = a.requires_grad_(), b.requires_grad_()
    torch.library.opcheck(getattr(torch.ops.winolab, f"conv_{direction}"), (a, b, *size, *geometry))


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
XS, WS = (v.to(DEVICE) for v in tensors(*SHAPES, dtype=torch.float32))
TRANSFORMS = transforms(XS, WS)
WIDE = transforms(XS.double(), WS.double())


@pytest.mark.parametrize("groups", [1, GROUPS])
@pytest.mark.parametrize("kind", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_give_pytorch_s_values(transform: str, kind: str, groups: int) -> None:
    leaves = torch.utils._pytree.tree_leaves
    got = TRANSFORMS[transform](partial(convolve, kind, groups, ours(kind), stride=1))
    exact = WIDE[transform](partial(convolve, kind, groups, partial(theirs, kind), stride=1))
    for p, q in zip(leaves(got), leaves(exact), strict=True):
        assert near(p, q, 1e-4)


def test_a_network_trains_as_pytorch_s_does() -> None:
    """Eager, checkpointed, compiled, under autocast, on another stream, in a CUDA graph."""
    net = Net().cuda()
    x = tensors((2, 3, 16, 16), dtype=torch.float32)[0].cuda()
    expected = net.gradients(net, x)
    again = net.gradients(net, x)
    assert all(torch.equal(p, q) for p, q in zip(again, expected, strict=True))
    torch.compiler.reset()
    models = {
        "compiled": torch.compile(net, fullgraph=True, backend="aot_eager"),
        "checkpointed": partial(torch.utils.checkpoint.checkpoint, net, use_reentrant=False),
    }
    for name, model in models.items():
        for got, due in zip(net.gradients(model, x), expected, strict=True):
            assert torch.equal(got, due), name
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for got, due in zip(net.gradients(net, x), expected, strict=True):
            assert torch.equal(got, due)
    torch.cuda.synchronize()
    with torch.no_grad():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)
        y.fill_(float("nan"))
        graph.replay()
        assert torch.equal(y, expected[0])
    wide = net.double().gradients(lambda v: _by_pytorch(net, v), x.double())
    net.float()
    for got, exact in zip(expected, wide, strict=True):
        assert near(got, exact, 1e-4)
    net.algorithm = None  # in 16 bits the planner's choice
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = net(x)
        assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
    assert near(net.w.grad, wide[1], 0.2)


def _by_pytorch(net: Any, x: Any) -> Any:
    """The network's result by PyTorch's convolutions."""
    functional = torch.nn.functional
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = functional.conv2d(x, net.w, net.b, padding="same").relu()
        y = functional.conv2d(y, net.v, padding=1)
        return functional.conv_transpose2d(y, net.u, stride=2, output_padding=1)


def test_wrong_calls_are_refused_in_a_line() -> None:
    x, w = (v.cuda() for v in tensors((2, 4, 6, 6), (6, 4, 3, 3), dtype=torch.float32))
    conv = winolab.torch.conv2d
    with pytest.raises(ValueError, match="x is on cuda:0 and w on cpu; move one of them"):
        conv(x, w.cpu())
    with pytest.raises(
        TypeError, match=r"x has dtype torch\.float32 and w torch\.float16; convert"
    ):
        conv(x, w.half())
    with pytest.raises(TypeError, match="x has dtype float64; the CUDA kernels read float32"):
        conv(x.double(), w.double())
    with pytest.raises(TypeError, match="a Tensor has no numbers that this could read"):
        torch.vmap(lambda v: winolab.conv_forward(v[None], w, layout="channels_first"))(x)
    mode = torch._subclasses.FakeTensorMode()
    with pytest.raises(TypeError, match="a FakeTensor has no numbers that this could read"):
        winolab.conv_forward(mode.from_tensor(x), mode.from_tensor(w), layout="channels_first")
