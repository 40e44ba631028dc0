"""Derivatives of the convolutions: the formulas on the CPU, torch's graph on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from tests.gpu.support.pretended import Array, Library
from tests.support.problems import integers, problems
from winolab.algorithm import gamma
from winolab.gpu.planner.request import DIRECTIONS
from winolab.gpu.runtime import autograd, conv
from winolab.gpu.runtime.resolve import Transformed
from winolab.options import ConvOptions
from winolab.problem import shapes
from winolab.ref.algorithms import convolution

SHAPES = {"x": (2, 6, 9, 16), "w": (24, 3, 3, 16), "y": (2, 6, 7, 24)}
OPERANDS = {"forward": "xw", "backward_data": "yw", "backward_filter": "xy"}
PADDING = (1, 0)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@given(problems(), st.sampled_from(DIRECTIONS), st.sampled_from([0, 1]), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_gradients_are_adjoint(problem, direction, operand, seed) -> None:
    """⟨g, f(a, b)⟩ = ⟨the gradient of a, a⟩ and ⟨that of b, b⟩, exactly on small integers."""

    def convolve(direction, problem, a, b, options) -> np.ndarray:
        return getattr(convolution, direction)(a, b, problem)

    a, b, g = (
        integers(s, seed + i).astype(float) for i, s in enumerate(shapes(direction, problem))
    )
    found = autograd.gradient(operand, (a, b, g), direction, problem, ConvOptions(), convolve)
    assert found.shape == (a, b)[operand].shape
    total = (g * convolve(direction, problem, a, b, None)).sum()
    assert (found * (a, b)[operand]).sum() == total


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gradients_are_asked_for_as_the_result_was(direction) -> None:
    """But for what holds for that alone: its dtype, scales of its operands, tiles of gradients."""
    asked = []
    options = ConvOptions(
        "channels_first", gamma(8, 6, 3), "fp32_ffma", "float16", 1 << 20, "raise"
    )
    for operand in range(2):
        autograd.gradient(operand, (0, 1, 2), direction, None, options, lambda *a: asked.append(a))  # pyright: ignore[reportArgumentType]
    for wanted, _, _, _, how in asked:
        kept = options.algorithm if "backward_filter" not in (direction, wanted) else None
        assert how == replace(options, out_dtype=None, algorithm=kept)
    assert {direction, *(wanted for wanted, *_ in asked)} == set(DIRECTIONS)


def test_what_has_no_place_in_a_graph_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(conv, "library_of", lambda array: Library())
    x, w, y = (Array(np.zeros(SHAPES[name], np.float32)) for name in "xwy")
    w.requires_grad = True
    with pytest.raises(ValueError, match=r"w requires grad, which a result in out has no place"):
        winolab.conv_forward(x, w, padding=PADDING, out=y)
    with pytest.raises(ValueError, match=r"w requires grad, and a prepared filter has none"):
        winolab.prepare_filter(w, x.shape, padding=PADDING)
    x.requires_grad = True
    held: Any = object.__new__(Transformed)
    with pytest.raises(ValueError, match=r"x requires grad, for which the prepared filter is of"):
        autograd.differentiable(conv.convolve, "forward", None, x, held, ConvOptions(), None)  # pyright: ignore[reportArgumentType]


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
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # dual_level's own
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
