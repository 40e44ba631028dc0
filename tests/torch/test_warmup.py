"""A network's kernels compiled before it is called, for a GPU that is not there."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from threading import Event
from typing import Any

import pytest
import torch
from torch import nn

import winolab.torch
from tests.torch.network import tensors
from winolab import calls
from winolab.bench import picks
from winolab.device import H100
from winolab.gpu import driver, warm
from winolab.gpu.planner.rivals import rivals
from winolab.gpu.runtime import cache, conv, nvrtc, smaller
from winolab.gpu.runtime.cache import plans
from winolab.torch import operators
from winolab.torch.plain import NATIVE

MODULE = sys.modules[winolab.torch.warmup.__module__]
X = tensors((2, 8, 16, 16), dtype=torch.float32)[0]


@pytest.fixture(autouse=True)
def compiled(tmp_path: Any, monkeypatch: Any) -> list[str]:
    """The sources that were compiled, which takes no time here; the cache begins empty."""
    found: list[str] = []

    def compile_cubin(source: str, arch: str) -> nvrtc.Compiled:
        assert arch == "sm_90a"
        found.append(source)
        return nvrtc.Compiled(source.encode(), {})

    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "compile_cubin", compile_cubin)
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    return found


def network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
    )
    winolab.torch.convert(model)
    return model


def test_a_network_s_kernels_are_compiled_once_and_found_again(compiled: list[str]) -> None:
    model = network().eval()
    before = copy.deepcopy(model.state_dict())
    done = winolab.torch.warmup(model, X, device="h100", workers=2)
    assert len(compiled) == len(set(compiled)) == len(done.units) == len(done.compiled) > 0
    assert all(torch.equal(v, before[name]) for name, v in model.state_dict().items())
    again = winolab.torch.warmup(model, X, device="h100", progress=False)
    assert len(compiled) == len(done.units) == len(again.units)
    assert not again.compiled
    assert str(again).endswith(f"{len(again.units)} in the cache")
    training = winolab.torch.warmup(model.train(), X, device="h100")
    assert training.compiled  # the gradients
    assert [p.grad for p in model.parameters()] == [None] * 6
    assert set(done.to_dict()["units"][0]) == {"title", "arch", "seconds"}


@pytest.mark.parametrize("training", [False, True])
def test_images_with_the_same_bits_in_every_batch_have_their_plan_s_kernels(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[tuple[int, Any]]] = {}
    found = warm.calls_units

    def noted(direction: str, problem: Any, gpu: Any, options: Any, *more: Any, **how: Any) -> Any:
        asked.setdefault(direction, []).append((problem.batch, options.config))
        return found(direction, problem, gpu, options, *more, **how)

    monkeypatch.setattr(warm, "calls_units", noted)
    model = network().train(training)
    winolab.torch.convert(model, batch_invariant=True)
    winolab.torch.warmup(model, X, device="h100")
    gradients = asked.pop("backward_filter", [])
    assert bool(gradients) == training
    assert all(batch == len(X) and not config for batch, config in gradients)
    assert asked.keys() == ({"forward", "backward_data"} if training else {"forward"})
    for batch, config in (call for each in asked.values() for call in each):
        assert batch == (len(X) if config else 1)


def test_copies_and_what_autocast_asks_for_are_compiled(compiled: list[str]) -> None:
    layer = winolab.torch.Conv2d(64, 64, 3, padding=1, bias=False).eval()
    x = torch.zeros(8, 64, 28, 28)
    titles = []
    for given in (x, x.to(memory_format=torch.channels_last)):
        done = winolab.torch.warmup(layer, given, device="h100")
        titles.append([unit.title for unit, _ in done.units])
    copied = "a copy of out in another memory order"
    assert copied in titles[0]
    assert copied not in titles[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halves = winolab.torch.warmup(layer, x, device="h100")
    assert any(" bf16 " in unit.title for unit, _ in halves.units)
    assert len(compiled) == len(set(compiled))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_s_kernels_are_compiled_under_autocast_which_keeps_no_fakes(
    dtype: torch.dtype,
) -> None:
    model = nn.Sequential(network(), nn.Flatten(), nn.Linear(2048, 3))
    parameters = list(model.parameters())
    with torch.autocast("cpu", dtype):
        model(X)  # autocast keeps the weights as it cast them
        done = winolab.torch.warmup(model.train(), X, device="h100")
        y = model(X)
        y.sum().backward()
    assert done.compiled
    assert type(y) is torch.Tensor
    assert all(type(p.grad) is torch.Tensor for p in parameters)
    with torch.autocast("cpu", dtype):
        unknown = torch.zeros(2, 9, 16, 16)
        with pytest.raises(ValueError, match="channels"):
            winolab.torch.warmup(model, unknown, device="h100")
        assert type(model(X)) is torch.Tensor


@pytest.mark.parametrize(
    ("workers", "error"), [(0, ValueError), (-1, ValueError), (True, ValueError), (1.5, TypeError)]
)
def test_threads_that_are_none_are_refused_in_a_line(workers: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"^workers is {workers}; expected"):
        winolab.torch.warmup(network(), X, device="h100", workers=workers)


@pytest.fixture
def on_a_gpu(monkeypatch: Any) -> Iterator[list[torch.Size]]:
    """Tensors of the CPU are said to be on a GPU; whose shapes PyTorch convolved meanwhile."""
    convolved: list[torch.Size] = []
    meanwhile = operators.cpu.meanwhile

    def noted(direction: str, problem: Any, a: torch.Tensor, *more: Any) -> torch.Tensor:
        convolved.append(a.shape)
        return meanwhile(direction, problem, a, *more)

    monkeypatch.setattr(operators.cpu, "meanwhile", noted)
    monkeypatch.setattr(operators, "_on_cpu", operators._on_cuda)
    monkeypatch.setattr(MODULE, "gpu_of", lambda model: H100)
    monkeypatch.setattr(NATIVE, "begin", lambda: None)
    before = torch._C._get_cudnn_benchmark()
    torch._C._set_cudnn_benchmark(True)
    monkeypatch.setattr(conv, "convolve", lambda *how: pytest.fail("a kernel runs"))
    yield convolved
    assert operators.OBSERVED.calls is None
    assert torch._C._get_cudnn_benchmark()
    torch._C._set_cudnn_benchmark(before)


class Odd(nn.Module):
    """What it remembers of a call it is to forget; it draws a number."""

    def __init__(self, layers: nn.Module, reads: bool = False) -> None:
        super().__init__()
        self.layers, self.reads, self.called = layers, reads, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.called += 1
        assert type(x) is not torch.Tensor or not torch._C._get_cudnn_benchmark()
        self.last = self.layers(x) + torch.rand(1)
        if self.reads and not x.is_meta:
            raise IndexError("out of memory, as it were")
        return self.last


@pytest.mark.parametrize("halves", [False, True])
def test_a_network_on_its_gpu_is_called_and_not_traced(
    on_a_gpu: list[torch.Size], monkeypatch: Any, halves: bool
) -> None:
    model = Odd(network()).eval()
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16, enabled=halves):
        traced = winolab.torch.warmup(model, X, device="h100")
        assert not on_a_gpu
        monkeypatch.setattr(MODULE, "without_numbers", None)
        observed = winolab.torch.warmup(model, X)
    assert {unit for unit, _ in observed.units} == {unit for unit, _ in traced.units}
    assert len(traced.compiled) == len(traced.units) > 0
    assert not observed.compiled
    assert on_a_gpu == [X.shape] * 2
    assert model.called == 0
    assert not hasattr(model, "last")
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(v, state[name]) for name, v in model.state_dict().items())


def test_a_network_that_cannot_be_called_is_traced(on_a_gpu: list[torch.Size]) -> None:
    model = Odd(network(), reads=True).eval()
    with pytest.raises(IndexError, match="as it were"):
        winolab.torch.warmup(model, X)
    assert len(on_a_gpu) == 2
    assert model.called == 0
    wrong = torch.zeros(2, 9, 16, 16)  # channels: what the layer says
    with pytest.raises(ValueError, match="channels"):
        winolab.torch.warmup(network().eval(), wrong)


@pytest.fixture
def clock(on_a_gpu: Any, monkeypatch: Any) -> list[tuple[Any, bool]]:
    """A clock by which every pick's first rival is twice as fast; what it was asked."""
    timed: list[tuple[Any, bool]] = []

    def told(request: Any, apart: bool) -> warm.Timed:
        timed.append((request, apart))
        pick, *others = rivals(request, apart)
        ranked = [(p, 1.0) for p in others[:1]] + [(pick, 2.0)]
        return warm.Timed(request, apart, pick, tuple(ranked))

    monkeypatch.setattr(picks, "timed", told)
    monkeypatch.setattr(plans, "_preferred", {})
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return timed


@pytest.mark.parametrize("training", [False, True])
def test_plans_are_timed_where_that_is_asked(clock: list[tuple[Any, bool]], training: bool) -> None:
    model, x = winolab.torch.Conv2d(64, 64, 3, padding=1).train(training), torch.ones(4, 64, 20, 20)
    model.requires_grad_(training)
    before = smaller.changes()
    calls.kept["what was called"] = None  # type: ignore[assignment]
    model.kept.native = "what was kept"
    done = winolab.torch.warmup(model, x, measure=True)
    assert clock == [(one.request, one.apart) for one in done.timed]
    found = {one.request.direction for one in done.timed}
    assert found == {"forward", *(["backward_filter"] if training else [])}
    assert any(one.plan != one.pick for one in done.timed)
    assert all(plans.planned(one.request, one.apart) == one.plan for one in done.timed)
    assert "times as fast" in str(done)
    assert smaller.changes() > before
    assert not calls.kept
    assert model.kept.native is None
    count = len(clock)
    assert winolab.torch.warmup(model, x).timed == ()
    assert len(clock) == count


def test_a_filter_apart_is_timed_of_what_a_clock_picked(clock: list[tuple[Any, bool]]) -> None:
    """In evaluation a filter is kept where the plan that is taken transforms it."""
    model = winolab.torch.Conv2d(256, 256, 3, padding=1).eval().requires_grad_(False)
    done = winolab.torch.warmup(model, torch.ones(8, 256, 56, 56), measure=True)
    whole, apart = done.timed
    assert (whole.apart, apart.apart) == (False, True)
    assert whole.plan.prepared_size
    assert apart.request == whole.request


def test_the_same_bits_of_every_batch_are_not_left_to_a_clock(clock: list[Any]) -> None:
    model = winolab.torch.Conv2d(64, 64, 3, batch_invariant=True).eval().requires_grad_(False)
    assert winolab.torch.warmup(model, torch.ones(4, 64, 20, 20), measure=True).timed == ()
    assert not clock


def test_what_is_measured_has_to_be_there() -> None:
    with pytest.raises(ValueError, match="move the model to the GPU, and name no"):
        winolab.torch.warmup(network(), X, measure=True, device="h100")
    with pytest.raises(ValueError, match="on the CPU"):
        winolab.torch.warmup(network(), X, measure=True)


def test_in_training_nothing_is_computed(on_a_gpu: list[torch.Size]) -> None:
    assert winolab.torch.warmup(network().train(), X).compiled
    assert not on_a_gpu


def test_a_damaged_file_of_the_cache_is_compiled_again(compiled: list[str]) -> None:
    """Issue 46, section 4: entries are verified by digest, rebuilt when damaged."""
    layer = winolab.torch.Conv2d(8, 8, 3).eval()
    winolab.torch.warmup(layer, X, device="h100")
    count = len(compiled)
    (damaged, *_) = sorted(cache.cache_folder().iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    done = winolab.torch.warmup(layer, X, device="h100")
    assert len(done.compiled) == 1
    assert len(compiled) == count + 1


def test_what_cannot_be_compiled_is_said_in_a_line() -> None:
    layer = winolab.torch.Conv2d(8, 8, 3)
    with pytest.raises(ValueError, match="on the CPU, which compiles nothing; name a GPU"):
        winolab.torch.warmup(layer, X)
    with pytest.raises(ValueError, match="unknown device"):
        winolab.torch.warmup(layer, X, device="abacus")
    wrong: Any = []
    with pytest.raises(TypeError, match=r"^model is a list; expected a torch.nn.Module$"):
        winolab.torch.warmup(wrong, X, device="h100")
    with pytest.raises(TypeError, match=r"^device is a list; expected a GPU's name or a Device$"):
        winolab.torch.warmup(layer, X, device=wrong)
    with pytest.raises((ValueError, TypeError)) as refused:
        winolab.torch.warmup(layer.double(), X.double(), device="h100")
    assert "float64" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_calls_do_without_kernels_while_threads_compile_them(
    compiled: list[str], monkeypatch: Any
) -> None:
    """Issue 46, section 4, on the CPU: tensors are said to be on a GPU, its kernels' result is told
    by a stand-in."""
    begin = Event()
    stand_in = nvrtc.compile_cubin
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda *how: begin.wait(60) and stand_in(*how))
    monkeypatch.setattr(driver, "device", lambda index: H100)
    monkeypatch.setattr(conv, "convolve", lambda *how: "by the kernels")
    monkeypatch.setattr(operators.BACKGROUND, "on", False)
    w, dy = tensors((4, 8, 3, 3), (2, 4, 14, 14), dtype=torch.float32)
    geometry = ([1, 1], [0] * 4, [1, 1], 1)
    calls = {
        "forward": (X, w, *geometry),
        "backward_data": (dy, w, X.shape, *geometry),
        "backward_filter": (X, dy, w.shape, *geometry),
    }
    assert operators._on_cuda("forward", *calls["forward"]) == "by the kernels"  # it waits
    winolab.torch.compile_in_background()
    for direction, arguments in calls.items():
        for _ in range(2):
            got = operators._on_cuda(direction, *arguments)
            assert torch.equal(got, operators._on_cpu(direction, *arguments))
        named = operators._on_cuda(direction, *arguments, "direct")
        assert named == "by the kernels"
        a, b, *rest = arguments
        half = operators._on_cuda(direction, a.half(), b.half(), *rest, None, None, torch.float32)
        assert half.dtype == torch.float32
        exact = operators._on_cpu(direction, a.half().double(), b.half().double(), *rest)
        terms = exact.new_tensor(8 * 14 * 14 * 9)  # at least as many as a sum has
        sums = operators._on_cpu(direction, a.half().double().abs(), b.half().double().abs(), *rest)
        assert ((half - exact).abs() <= terms * 2**-24 * sums).all()
    assert not compiled
    begin.set()
    for begun in operators.BACKGROUND._begun.values():
        begun.result(60)
    assert len(compiled) >= len(calls)
    for direction, arguments in calls.items():
        assert operators._on_cuda(direction, *arguments) == "by the kernels"


def test_what_cannot_be_compiled_is_left_to_the_call() -> None:
    background = warm.Background()

    def refuse() -> list[warm.Unit]:
        raise ValueError("no kernel serves this")

    background.ready("a call", refuse)
    assert isinstance(background._begun["a call"].exception(60), ValueError)
    assert background.ready("a call", refuse)


@pytest.mark.parametrize("wait", [True, False])
def test_the_module_past_python_is_waited_for_where_it_is_asked(wait: bool, monkeypatch) -> None:
    waited = []
    monkeypatch.setattr(NATIVE, "wait", lambda: waited.append(True))
    winolab.torch.warmup(nn.ReLU(), torch.ones(1), device="h100", wait=wait)
    assert waited == [True] * wait
