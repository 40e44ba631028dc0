"""One image of filters of one tap: what is read in place gives results that lie as PyTorch's do."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.torch.network import tensors  # noqa: E402
from winolab.algorithm import direct  # noqa: E402
from winolab.arguments.arrays import seen  # noqa: E402
from winolab.gpu.runtime.arrays import TORCH, Described  # noqa: E402
from winolab.gpu.runtime.call import prepare_call  # noqa: E402
from winolab.options import ConvOptions  # noqa: E402
from winolab.problem import Problem  # noqa: E402

NAMED = "direct;variant=cublaslt"
X, W, Y = (1, 64, 7, 8), (32, 64, 1, 1), (1, 32, 7, 8)
OPERANDS = {"forward": (X, W), "backward_data": (Y, W), "backward_filter": (X, Y)}
LAYERS = {
    "row": ((1, 24, 40), (16, 24, 1)),
    "map": (X, W),
    "odd": ((1, 512, 7, 7), (2048, 512, 1, 1)),
    "volume": ((1, 16, 3, 8, 12), (24, 16, 1, 1, 1)),
}
KINDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}  # relative RMS at most


def gradients(convolve: Any, x: Any, w: Any, dy: Any) -> list[Any]:
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = convolve(x, w)
    return [y.detach(), *torch.autograd.grad(y, (x, w), dy)]


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_new_results_lie_as_pytorch_has_them(library, first: bool) -> None:
    """In the operand's order, with nothing copied either way."""
    memory = torch.contiguous_format if first else torch.channels_last
    given = {shape: torch.ones(shape).contiguous(memory_format=memory) for shape in (X, W, Y)}
    due = gradients(torch.nn.functional.conv2d, *given.values())
    problem = Problem.of((1, 7, 8, 64), (32, 1, 1, 64))
    options = ConvOptions(algorithm=direct(variant="cublaslt"), layout="channels_first")
    for (direction, shapes), right in zip(OPERANDS.items(), due, strict=True):
        a, b = (Described(s, given[s].stride(), "float32", 0, True) for s in shapes)
        call = prepare_call(direction, problem, TORCH, options, a, b, None)
        shape, strides = seen(*call.laid())
        assert (call.copies, call.out_dtype, shape) == ((), "float32", tuple(right.shape))
        pairs = zip(shape, strides, right.stride(), strict=True)
        assert all(mine == theirs for n, mine, theirs in pairs if n > 1)
    assert not library.reordered()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_steps_on_a_gpu_are_pytorch_s(layer: str, kind: Any) -> None:
    """Values of FP64 and PyTorch's strides, by name and as picked, by Python and replayed."""
    shapes = LAYERS[layer]
    plain = getattr(torch.nn.functional, f"conv{len(shapes[0]) - 2}d")
    ours = getattr(winolab.torch, f"conv{len(shapes[0]) - 2}d")
    y_shape = (1, shapes[1][0], *shapes[0][2:])
    x, w, dy = (v.cuda().to(kind) for v in tensors(*shapes, y_shape, dtype=torch.float32))
    exact = gradients(plain, x.double(), w.double(), dy.double())
    theirs = gradients(plain, x, w, dy)
    for convolve in (ours, partial(ours, algorithm=NAMED)):
        before = None
        for _ in range(4):
            found = gradients(convolve, x, w, dy)
            for mine, right, its in zip(found, exact, theirs, strict=True):
                pairs = zip(mine.shape, mine.stride(), its.stride(), strict=True)
                assert all(one == other for n, one, other in pairs if n > 1)
                assert (mine.double() - right).norm() <= KINDS[kind] * right.norm()
            assert all(map(torch.equal, found, before or found))
            before = found
