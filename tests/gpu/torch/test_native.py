"""Calls past Python on a GPU: bits, memory, streams and devices are those of calls by Python."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.gpu.support.steps import check_captured  # noqa: E402
from winolab import calls  # noqa: E402
from winolab.arguments.tolerance import USUAL_TOLERANCE  # noqa: E402
from winolab.gpu import driver  # noqa: E402
from winolab.gpu.planner.planner import plan  # noqa: E402
from winolab.gpu.planner.request import Request  # noqa: E402
from winolab.gpu.runtime import smaller  # noqa: E402
from winolab.problem import Problem  # noqa: E402
from winolab.torch import plain  # noqa: E402

pytestmark = pytest.mark.gpu
# Images, filter, and the rest, of every family that default picks have.
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "dense": ((8, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    "odd": ((2, 37, 19, 23), (41, 37, 5, 5), {"padding": 2}),
    "pointwise": ((8, 64, 28, 28), (256, 64, 1, 1), {}),
    "strided": ((8, 64, 28, 28), (128, 64, 3, 3), {"padding": 1, "stride": 2}),
    "stem": ((8, 3, 64, 64), (32, 3, 7, 7), {"padding": 3, "stride": 2}),
    "thin": ((8, 64, 28, 28), (3, 64, 3, 3), {"padding": 1}),
    "depthwise": ((8, 64, 28, 28), (64, 1, 5, 5), {"padding": 2, "groups": 64}),
    "grouped": ((8, 64, 28, 28), (64, 16, 3, 3), {"padding": 1, "groups": 4}),
    "dilated": ((8, 64, 28, 28), (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
    "row": ((8, 64, 400), (64, 64, 9), {"padding": 4}),
    "volume": ((2, 16, 8, 12, 12), (32, 16, 3, 3, 3), {"padding": 1}),
}
KINDS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ORDERS = {2: torch.channels_last, 3: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def module() -> Iterator[Any]:
    plain.NATIVE.begin()
    plain.NATIVE.wait()
    assert plain.NATIVE.module
    yield plain.NATIVE.module
    gc.collect()


def by_python(monkeypatch: pytest.MonkeyPatch, off: bool) -> None:
    monkeypatch.setattr(plain.NATIVE, "call", None if off else plain.NATIVE.module.call)


def drawn(shape: tuple[int, ...], kind: Any, last: bool, seed: int) -> Any:
    draws = torch.Generator("cuda").manual_seed(seed)
    v = torch.rand(shape, generator=draws, device="cuda", dtype=torch.float32).sub(0.5).to(kind)
    return v.contiguous(memory_format=ORDERS[len(shape) - 2]) if last else v


def results(layer: str, kind: Any, last: bool, seed: int) -> list[Any]:
    """The result and gradients of one step, and the result without them; poisoned memory lies
    where they come to lie."""
    x_shape, w_shape, how = LAYERS[layer]
    convolve = partial(getattr(winolab.torch, f"conv{len(x_shape) - 2}d"), **how)
    x, w = (
        drawn(s, kind, last, seed + i).requires_grad_() for i, s in enumerate((x_shape, w_shape))
    )
    y = convolve(x, w)
    upstream = drawn(y.shape, kind, last, seed + 2)
    torch.full((2 * y.numel(),), torch.nan, device="cuda")
    found = [y.detach(), *torch.autograd.grad(y, (x, w), upstream)]
    with torch.no_grad():
        return [*found, convolve(x, w)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("layer", "last"),  # channels last is of two and three dimensions
    [(name, last) for name in LAYERS for last in (False, True) if not (last and name == "row")],
)
def test_bits_are_those_of_python(
    monkeypatch: pytest.MonkeyPatch, module: Any, layer: str, kind: str, last: bool
) -> None:
    before = module.kept()
    due = {}
    for off in (True, False):
        by_python(monkeypatch, off)
        for seed in (0, 0, 0, 7, 7, 9):
            found = results(layer, KINDS[kind], last, seed)
            assert all(bool(torch.isfinite(v).all()) for v in found)
            for mine, right in zip(found, due.setdefault(seed, found), strict=True):
                assert torch.equal(mine, right)
                assert mine.stride() == right.stride()
    assert module.kept() >= before + 3


@pytest.mark.parametrize("kind", KINDS)
def test_operators_and_compiled_code_have_the_bits_of_calls(kind: str) -> None:
    """By the module's kernel of the operators, with gradients and without."""
    x, w = (drawn(shape, KINDS[kind], True, i).requires_grad_()
            for i, shape in enumerate(LAYERS["dense"][:2]))  # fmt: skip
    arguments = [1, 1], [1, 1, 1, 1], [1, 1], 1
    operator = torch.ops.winolab.conv_forward.default
    for _ in range(4):
        y = winolab.torch.conv2d(x, w, padding=1)
        due = [y.detach(), *torch.autograd.grad(y, (x, w), y.detach())]
    compiled = torch.compile(lambda a, b: operator(a, b, *arguments), backend="aot_eager")
    for call in (operator, lambda a, b, *_: compiled(a, b)):
        for _ in range(3):
            y = call(x, w, *arguments)
            found = [y.detach(), *torch.autograd.grad(y, (x, w), y.detach())]
            assert all(map(torch.equal, found, due))
            with torch.no_grad():
                assert torch.equal(call(x, w, *arguments), due[0])
    assert plain.NATIVE._kernels


def test_streams_and_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    by_python(monkeypatch, False)
    for _ in range(4):
        due = results("dense", torch.float32, False, 0)
    for index in range(torch.cuda.device_count()):
        with torch.cuda.device(index):
            for stream in (torch.cuda.Stream(), torch.cuda.current_stream()):
                stream.wait_stream(torch.cuda.default_stream())
                with torch.cuda.stream(stream):
                    for _ in range(4):
                        found = results("dense", torch.float32, False, 0)
                stream.synchronize()
                for mine, right in zip(found, due, strict=True):
                    assert mine.device.index == index
                    assert torch.equal(mine.cpu(), right.cpu())


def test_what_does_not_fit_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    by_python(monkeypatch, False)
    shape = 64, 64, 112, 112
    w = drawn((64, 64, 3, 3), torch.float32, False, 1)
    x = drawn(shape, torch.float32, False, 0)
    with torch.no_grad():
        for _ in range(4):
            winolab.torch.conv2d(x, w, padding=1)
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 2**20) / whole)
    try:
        with torch.no_grad(), pytest.raises(MemoryError, match="no device memory for"):
            winolab.torch.conv2d(x, w, padding=1)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    with torch.no_grad():
        assert bool(winolab.torch.conv2d(x, w, padding=1).isfinite().all())


def test_less_workspace_is_taken_where_memory_lacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The native module leaves the call to Python, which keeps what fits; it may be captured."""
    by_python(monkeypatch, False)
    problem = Problem.of((32, 28, 28, 256), (256, 7, 7, 256), padding=3)
    device = driver.device(0)
    usual = plan(Request(problem, "forward", device, None, "fp32", tolerance=USUAL_TOLERANCE))
    monkeypatch.setattr(smaller, "_limits", {})
    x = drawn((32, 256, 28, 28), torch.float32, True, 0)
    w = drawn((256, 256, 7, 7), torch.float32, True, 1)
    data = 4 * (2 * x.numel() + w.numel())
    if usual.workspace <= data + (64 << 20):
        pytest.skip("on this GPU the planner takes little workspace for the layer")
    with torch.no_grad():
        for _ in range(4):
            first = winolab.torch.conv2d(x, w, padding=3)
        torch.cuda.empty_cache()
        whole = torch.cuda.get_device_properties(0).total_memory
        most = torch.cuda.memory_allocated() + 4 * x.numel() + usual.workspace - (32 << 20)
        caplog.clear()
        torch.cuda.set_per_process_memory_fraction(most / whole)
        try:
            found = [winolab.torch.conv2d(x, w, padding=3) for _ in range(2)]
            said = [r.getMessage() for r in caplog.records if r.name == "winolab.gpu"]
            said = [line for line in said if line.startswith("no device memory")]
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert len(said) == 1
        assert f"no device memory for {usual.workspace} B of workspace: forward" in said[0]
        assert torch.equal(*found)
        error = (found[0] - first).norm() / first.norm()
        assert float(error) <= 1e-4
        check_captured(lambda v: winolab.torch.conv2d(v, w, padding=3), x)
    calls.kept.clear()


def test_a_captured_graph_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    by_python(monkeypatch, False)
    layer = winolab.torch.Conv2d(64, 64, 3, padding=1).cuda().eval()
    x = drawn((8, 64, 28, 28), torch.float32, False, 0)
    with torch.no_grad():
        for _ in range(4):
            layer(x)
    check_captured(layer, x)


def error(y: Any, exact: Any) -> float:
    return float((y.double() - exact).norm() / exact.norm())


def test_a_weight_that_changes_is_another_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split products err by 3e-7, and a filter that is another's by 1."""
    by_python(monkeypatch, False)
    layer = winolab.torch.Conv2d(64, 64, 3, padding=1, bias=False).cuda().eval()
    x = drawn((8, 64, 28, 28), torch.float32, False, 0)
    with torch.no_grad():
        for step in range(8):
            if step == 5:
                layer.weight.mul_(-3)
            exact = torch.nn.functional.conv2d(x.double(), layer.weight.double(), padding=1)
            assert error(layer(x), exact) < 1e-5
