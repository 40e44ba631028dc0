"""Modules in evaluation whose weight is another than it was, by Python and past it: CPU tensors are
taken for a GPU's."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.gpu.support.steps import HOW, OURS, THEIRS, W, agree, drawn  # noqa: E402
from winolab.torch import kept, operators  # noqa: E402

ALGORITHMS = pytest.mark.parametrize("algorithm", [HOW["algorithm"], "direct"])


def evaluated(prepared: Any, monkeypatch: pytest.MonkeyPatch, algorithm: Any) -> tuple[Any, Any]:
    """A layer in evaluation that was called some times, and its input."""
    monkeypatch.setattr(kept, "serves", lambda a, w: not torch.is_grad_enabled())
    how = {**HOW, "algorithm": algorithm, "bias": False}
    layer, x = winolab.torch.Conv2d(4, 8, 3, **how).eval(), drawn()[0].detach()
    for _ in range(4):
        agree(drawn())
        check(layer, x)
    return layer, x


def check(layer: Any, x: Any) -> None:
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(layer(x), THEIRS(x, layer.weight), rtol=1e-4, atol=1e-4)


@ALGORITHMS
def test_data_that_lies_otherwise(prepared, monkeypatch, algorithm: str) -> None:
    """At the same address, which counts no version."""
    layer, x = evaluated(prepared, monkeypatch, algorithm)
    data = layer.weight.data
    for other in (data.mT, data[:4], data.as_strided(W, (1, 8, 32, 96)), data):
        layer.weight.data = other
        check(layer, x)


@ALGORITHMS
def test_a_profiler_sees_the_calls_that_are_made_without_it(
    prepared, monkeypatch, algorithm: str
) -> None:
    """A kept filter is used under it, too: else it tells of kernels that no other call launches."""
    layer, x = evaluated(prepared, monkeypatch, algorithm)
    made = []
    monkeypatch.setattr(kept, "transformed", lambda *_: made.append(1))
    with torch.no_grad(), torch.profiler.profile() as profiled:
        y = layer(x)
    torch.testing.assert_close(y, THEIRS(x, layer.weight.detach()), rtol=1e-4, atol=1e-4)
    assert not made
    assert "winolab::conv_forward" in {event.name for event in profiled.events()}
    with monkeypatch.context() as patched, torch.no_grad(), torch.profiler.profile():
        patched.setattr(layer.kept, "_run", lambda *_: "kept")
        assert layer(x) == "kept"


def test_data_in_memory_that_was_the_weight_s(prepared, monkeypatch) -> None:
    """An allocator hands out again what was freed, whose address tells nothing then."""
    layer, x = evaluated(prepared, monkeypatch, HOW["algorithm"])
    memory = torch.randn(W)  # stands for the allocator's

    def handed_out() -> Any:
        return torch.from_numpy(memory.numpy())

    layer.weight.data = handed_out()
    check(layer, x)
    layer.weight.data = torch.ones(W)
    memory.mul_(-2)
    layer.weight.data = handed_out()
    check(layer, x)


@pytest.fixture
def swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@ALGORITHMS
def test_states_are_loaded_by_swapping(prepared, monkeypatch, swapping, algorithm: str) -> None:
    layer, x = evaluated(prepared, monkeypatch, algorithm)
    layer.load_state_dict({"weight": torch.ones(W)})
    assert torch.equal(layer.weight, torch.ones(W))
    check(layer, x)


@ALGORITHMS
def test_a_weight_that_leads_to_its_module_is_freed(prepared, monkeypatch, algorithm: str) -> None:
    """As its hooks may."""
    layer, _ = evaluated(prepared, monkeypatch, algorithm)
    layer.weight.module = layer
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None


def test_autocast_leaves_double_precision_alone(prepared, monkeypatch) -> None:
    """Which is refused then, as in training."""
    layer, x = evaluated(prepared, monkeypatch, None)
    layer.double()
    with (
        torch.no_grad(),
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(TypeError, match="x has dtype float64"),
    ):
        layer(x.double())


def test_inference_mode_records_nothing(prepared) -> None:
    """Not where gradients are on in it, either, as PyTorch has it."""
    for _ in range(4):
        agree(drawn())
    with torch.inference_mode(), torch.enable_grad():
        y = OURS(*drawn())
    assert y.is_inference()
    assert not y.requires_grad


@pytest.mark.parametrize("algorithm", [None, HOW["algorithm"]])
def test_what_warmup_observes_is_as_autocast_casts_it(prepared, monkeypatch, algorithm) -> None:
    """A weight in float32 beside an input that is cast was said to be refused."""
    layer, x = evaluated(prepared, monkeypatch, algorithm)
    calls: list[Any] = []
    monkeypatch.setattr(operators.OBSERVED, "calls", calls)
    monkeypatch.setattr(operators.cpu, "meanwhile", lambda *how: torch.zeros(1))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x)
    assert {v.dtype for _, *pair in calls for v in pair} == {torch.bfloat16}
