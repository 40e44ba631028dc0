"""Times beside others: who takes part, cold and warm, memory by allocator, shares."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from winolab.bench.contenders import Arrays
from winolab.judge import speed
from winolab.judge.candidate import Declined
from winolab.judge.claim import Claim
from winolab.judge.loading import load
from winolab.problem import Problem

KERNELS = str(Path(__file__).with_name("kernels.py"))
LAYER = Problem.of((2, 9, 8, 4), (6, 3, 3, 4), padding=1)
# Others beside the kernel: ours in FP64 and in what is claimed, PyTorch in both memory orders.
OTHERS = ["winolab FP64", "winolab direct fp32", "torch", "torch channels last"]


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little to overwrite between calls: a server's last cache takes longer than all that runs."""
    monkeypatch.setattr(speed, "FLUSH", 1 << 12)
    monkeypatch.setattr(speed, "_last_cache", lambda: 0)


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize(
    ("name", "direction"),
    [("right", "forward"), ("data_gradient", "backward_data"),
     ("filter_gradient", "backward_filter")],
)  # fmt: skip
def test_rows_of_a_layer_have_everybody(
    name: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "SIZE", 64)
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    candidate = load(f"{KERNELS}:{name}", direction=direction)
    rows = speed.timed(candidate, Claim("direct", "fp32", direction), LAYER, "mine")
    assert [row["method"] for row in rows] == [candidate.name, *OTHERS]
    for row in rows:
        assert (row["row"], row["layer"], row["problem"]) == ("time", "mine", "2x9x8x4>6x3x3p1")
        assert (row["judged"], row["rounds"]) == (candidate.name, speed.ROUNDS)
        for times in (row["cold_us"], row["warm_us"]):
            assert 0 < times[0] <= times[1] <= times[2]
        flop = 2 * LAYER.macs
        assert row["tflops"] == pytest.approx(flop / row["cold_us"][1] / 1e6, rel=0.02)
        assert row["share"] == pytest.approx(row["tflops"] / row["ceiling_tflops"], rel=0.02)
    # FP64 copies of both operands, at least
    assert rows[0]["workspace"] > 8 * (LAYER.batch * 9 * 8 * 4)
    assert {row["workspace"] for row in rows[1:]} == {None}


def test_the_others_compute_the_same() -> None:
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal(s).astype("f4") for s in (LAYER.x_shape, LAYER.w_shape)]
    claim = Claim("F(2x2,3x3)", "fp32")
    exact, ours = (call() for call in speed._ours(claim, operands, LAYER).values())
    assert np.abs(ours - exact).max() <= 1e-5
    for call in speed._torch(claim, operands, LAYER).values():
        assert np.abs(np.moveaxis(call().numpy(), 1, -1) - exact).max() <= 1e-5
    odd = Problem.of((2, 9, 8, 4), (6, 3, 3, 4), padding=((0, 1), (1, 1)))
    assert speed._torch(claim, operands, odd) == {}


@pytest.mark.usefixtures("small_cache")
def test_calls_take_turns_cold_and_warm() -> None:
    heard: list[str] = []
    times = speed.interleaved({"a": lambda: heard.append("a"), "b": lambda: heard.append("b")}, 0.0)
    assert heard[:8] == ["a", "a", "b", "b", "b", "b", "a", "a"]
    assert [len(t) for pair in times.values() for t in pair] == [speed.ROUNDS] * 4
    many = speed.interleaved({"a": lambda: time.sleep(1e-4)}, 30.0)
    assert len(many["a"][0]) == speed.MOST_ROUNDS


def test_memory_is_what_the_allocator_gave_beside_the_result() -> None:
    out = np.empty((256, 1024), np.float32)
    candidate = load(f"{KERNELS}:right")

    def numpy_call() -> np.ndarray:
        beside = np.ones(3 * out.size, np.float32)
        return beside[: out.size] + np.float32(1)

    found = speed.bytes_beside(candidate, numpy_call, out)
    assert found is not None
    assert 3 * out.nbytes <= found <= 3.05 * out.nbytes
    assert speed.bytes_beside(candidate, lambda: None, out) is None
    torch = pytest.importorskip("torch")
    tensor = torch.empty(256, 1024)
    candidate = load("torch.nn.functional:conv2d")

    def torch_call() -> object:
        beside = torch.ones(3 * tensor.numel())
        return beside[: tensor.numel()] + 1

    found = speed.bytes_beside(candidate, torch_call, tensor)
    assert found is not None
    assert 3 * out.nbytes <= found <= 3.05 * out.nbytes


def test_a_guest_computes_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what an object of the same address had before."""
    monkeypatch.setattr(speed, "_device_workspace", lambda *_: 0)
    given: list[np.ndarray] = []
    candidate = replace(
        load(f"{KERNELS}:right"), called=lambda a, b, p, out: given.append(a), out=True
    )
    guest = speed._guest(candidate, LAYER, "fp32")
    for number in range(20):
        operands = {"NHWC": [np.full(1, number), np.zeros(1)]}
        guest.run(cast(Arrays, SimpleNamespace(operands=operands, results=operands)), 0)
    assert [int(each[0]) for each in given] == list(range(20))


def test_a_layer_that_is_not_served_is_declined() -> None:
    strided = Problem.of((2, 9, 8, 4), (6, 3, 3, 4), stride=2)
    with pytest.raises(Declined, match="it has no argument stride"):
        speed.timed(load(f"{KERNELS}:tf32"), Claim(), strided, "strided")
