"""Derivatives of the convolutions: the formulas on the CPU, torch's graph on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import winolab
from winolab.gpu.planner.request import DIRECTIONS

SHAPES = {"x": (2, 6, 9, 16), "w": (24, 3, 3, 16), "y": (2, 6, 7, 24)}
OPERANDS = {"forward": "xw", "backward_data": "yw", "backward_filter": "xy"}
PADDING = (1, 0)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_torch_differentiates_twice(torch, direction, layout) -> None:
    """First and second derivatives of a square are those of the same sums in FP64."""
    generator = torch.Generator("cuda").manual_seed(0)
    names = OPERANDS[direction]

    def tensor(name: str) -> Any:
        made = torch.rand(SHAPES[name], generator=generator, device="cuda") - 0.5
        return made.movedim(-1, 1) if layout == "channels_first" else made

    a, b = (tensor(name).requires_grad_() for name in names)
    ways = tensor(names[0]), tensor(names[1])
    size = {"backward_data": [tensor("x").shape], "backward_filter": [tensor("w").shape]}

    def ours(a: Any, b: Any) -> Any:
        call = getattr(winolab, f"conv_{direction}")
        return call(a, b, *size.get(direction, ()), padding=PADDING, layout=layout)

    def theirs(a: Any, b: Any) -> Any:
        first = layout == "channels_first"
        a, b = (v if first else v.movedim(-1, 1) for v in (a, b))
        shape = [tuple(s if first else (s[0], s[-1], *s[1:-1])) for s in size.get(direction, ())]
        calls = {
            "forward": torch.nn.functional.conv2d,
            "backward_data": lambda dy, w, **how: torch.nn.grad.conv2d_input(*shape, w, dy, **how),
            "backward_filter": lambda x, dy, **how: torch.nn.grad.conv2d_weight(
                x, *shape, dy, **how
            ),
        }
        y = calls[direction](a, b, padding=PADDING)
        return y if first else y.movedim(1, -1)

    found = []
    for convolve, (p, q), (u, v) in (
        (ours, (a, b), ways),
        (theirs, *([t.detach().double() for t in pair] for pair in ((a, b), ways))),
    ):
        p, q = p.requires_grad_(), q.requires_grad_()
        once = torch.autograd.grad((convolve(p, q) ** 2).sum(), (p, q), create_graph=True)
        twice = torch.autograd.grad((once[0] * u).sum() + (once[1] * v).sum(), (p, q))
        found.append([*once, *twice])
    for got, exact in zip(*found, strict=True):
        got, exact = got.detach().double(), exact.detach()
        error = (got - exact).norm() / exact.norm()
        assert float(error) <= 1e-5  # three convolutions in a row, of 3e-6 each at the most (Γ8)
    with torch.no_grad():
        assert not ours(a, b).requires_grad


@pytest.mark.gpu
def test_a_wider_result_has_gradients_of_its_operands_type(torch) -> None:
    x, w = (torch.rand(SHAPES[name], device="cuda", dtype=torch.float16).requires_grad_()
            for name in "xw")  # fmt: skip
    y = winolab.conv_forward(x, w, padding=PADDING, out_dtype=torch.float32)
    y.sum().backward()
    assert y.dtype == torch.float32
    assert (x.grad.dtype, w.grad.dtype) == (torch.float16, torch.float16)
    taps = w.detach().double().sum(0).sum((0, 1))
    inner = x.grad[:, 1:-1, 2:-2].double()
    # the result's rounding in FP16, and as much again from the transforms
    assert float(((inner - taps) / taps).abs().max()) <= 2.0**-10


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # dual_level's own
def test_results_live_in_torch_as_its_own_do(torch) -> None:
    """Tangents, views that negate, results changed in place, saved tensors that were written to."""
    forward = torch.autograd.forward_ad

    def random(*names: str) -> list[Any]:
        return [torch.rand(SHAPES[n], device="cuda") - 0.5 for n in names]

    def near(got: Any, exact: Any) -> bool:
        return float((got.double() - exact.double()).norm() / exact.double().norm()) <= 1e-5

    x, w, dx, dw = random("x", "w", "x", "w")
    expected = winolab.conv_forward(dx, w, padding=PADDING)
    expected += winolab.conv_forward(x, dw, padding=PADDING)
    with forward.dual_level():
        y = winolab.conv_forward(
            forward.make_dual(x, dx), forward.make_dual(w, dw), padding=PADDING
        )
        assert near(forward.unpack_dual(y).tangent, expected)

    negated = torch.complex(x, w.new_zeros(()).expand_as(x) + dx).conj().imag
    for _ in range(2):
        got = winolab.conv_forward(negated, w, padding=PADDING)
        assert near(got, -winolab.conv_forward(dx, w, padding=PADDING))
    with pytest.raises(ValueError, match="out is a view that negates"):
        winolab.conv_forward(x, w, padding=PADDING, out=negated)

    first = x.movedim(-1, 1).requires_grad_()  # channels_last in memory
    y = winolab.conv_forward(first, w.movedim(-1, 1), padding=PADDING, layout="channels_first")
    torch.nn.functional.relu_(y).sum().backward()
    assert first.grad.shape == first.shape

    (buffer,) = random("y")
    product = (buffer * buffer.clone().requires_grad_()).sum()
    winolab.conv_forward(x.detach(), w, padding=PADDING, out=buffer)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
