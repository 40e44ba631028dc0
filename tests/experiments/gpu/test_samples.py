"""Samples on GPUs from made-up rows: means and the least by kind of layer, and what is missed."""

from __future__ import annotations

import math

import pytest

from experiments.calibrate import gone
from experiments.gpu import samples
from experiments.gpu.samples import speeds
from winolab.bench.networks import networks, parse
from winolab.gpu.params import MOST


def case(layer: str, group: str, ours: float, torch: float, tf32: float) -> list[dict]:
    """A case's rows: the pick, a slower plan, PyTorch in two memory orders and by TF32."""
    which = {"layer": layer, "group": group, "direction": "forward", "precision": "fp32",
             "device": "NVIDIA H"}  # fmt: skip
    times = (("winolab", ours), ("winolab", 0.1), ("torch", torch), ("torch", 2 * torch),
             ("tf32", 3 * tf32), ("tf32", tf32))  # fmt: skip
    return [{**which, "method": method, "us": us, "chosen": method == "winolab" and us != 0.1}
            for method, us in times]  # fmt: skip


def test_speeds_are_of_picks_over_the_faster_order() -> None:
    rows = [*case("a", "dense", 1.0, 4.0, 2.0), *case("b", "dense", 2.0, 2.0, 1.0),
            *case("c", "stem", 4.0, 2.0, 2.0)]  # fmt: skip
    for row in rows:
        row["bytes"] = 1
    (found,) = speeds(rows)
    assert found.torch == {"dense": [4.0, 1.0], "stem": [0.5]}
    assert found.tf32 == [2.0, 0.5, 0.5]
    assert found.slow == pytest.approx(1 / 3)
    assert found.devices == {"NVIDIA H"}


def test_a_missed_aim_is_said(monkeypatch) -> None:
    slow = case("a", "1x1", 2.0, 1.0, 1.0)
    monkeypatch.setattr(samples.machines, "stored", lambda path: slow * ("forward" in path.stem))
    line = samples.networks()[-1]
    assert line.startswith("| FP32, forward | 0.50 (0.50, 1) | 2.00 missed | 0.50 missed | 100.0%")
    fast = case("a", "1x1", 1.0, 3.0, 1.0)
    monkeypatch.setattr(samples.machines, "stored", lambda path: fast * ("forward" in path.stem))
    assert "missed" not in samples.networks()[-1]
    both = [*slow, *fast]  # those that were added last are of what is picked now
    monkeypatch.setattr(samples.machines, "stored", lambda path: both * ("forward" in path.stem))
    assert samples.networks()[-1].startswith("| FP32, forward | 3.00 (3.00, 1) | 2.00 reached")


def test_aims_are_judged_by_cases_with_cudnn_where_there_are_any(monkeypatch) -> None:
    rows = case("a", "1x1", 1.0, 3.0, 1.0)
    monkeypatch.setattr(samples.machines, "stored", lambda path: rows * ("forward" in path.stem))
    (line,) = samples.networks()[4:]
    assert line.startswith("| FP32, forward | 3.00 (3.00, 1) | 2.00 reached | 1.00 reached | 0.0%")
    other = case("b", "1x1", 1.0, 6.0, 1.0)
    rows += [*other, {**other[2], "method": "cudnn", "us": 0.5}]
    data = [{**row, "direction": "backward_data"} for row in case("a", "1x1", 1.0, 3.0, 1.0)]
    rows += data
    torch, both, alone = samples.networks()[4:]
    mean = "| FP32, forward | 4.24 (3.00, 2) |  | 1.00 reached | 0.0% | 0 |"
    assert torch.startswith(mean)  # over PyTorch, without a verdict
    assert both.startswith(
        "| … over cuDNN's, too | 0.50 (0.50, 1) | 2.00 missed |  | 100.0% missed"
    )
    assert alone.startswith("| FP32, backward data | 3.00 (3.00, 1) | 2.00 reached over PyTorch al")


def test_what_a_clock_picked_is_shown_beside_the_picks(monkeypatch) -> None:
    first, second = (case(v, "1x1", 2.0, 3.0, 1.0) for v in "ab")
    for mine in (first, second):
        mine[0]["rivals"] = 4
    first.append({**first[1], "method": "clock", "us": 0.5, "chosen": False})
    rows = [*first, *second, *case("c", "1x1", 1.0, 9.0, 1.0)]
    monkeypatch.setattr(samples.machines, "stored", lambda path: rows * ("forward" in path.stem))
    every, picked, clock = samples.networks()[4:]
    assert every.startswith("| FP32, forward | 2.73 (1.50, 3) | 2.00 reached")
    assert picked.startswith("| … of these as picked | 1.50 (1.50, 2) |  |  | 0.0% |")
    assert clock.startswith("| … and by a clock | 3.00 (1.50, 2) | 2.00 reached |")


def test_how_much_longer_picks_took_than_the_fastest_beside_them(monkeypatch) -> None:
    which = {"layer": "a", "direction": "forward", "precision": "fp16"}
    plans = [["slow", 0, 1.0, 3.0], ["fast", 0, 1.0, 1.5]]
    rows = [{**which, "pick": "fast", "plans": plans}, {**which, "pick": "slow", "plans": plans},
            {**which, "layer": "b", "pick": "slow", "plans": plans[:1]}]  # fmt: skip
    monkeypatch.setattr(samples, "stored", lambda name: rows)
    assert samples.regret() == (
        "The picks of 1 call took 100.0% longer than the fastest of what was timed beside them, "
        "up to 2.00 times as long. "
    )
    monkeypatch.setattr(samples, "stored", lambda name: [])
    assert samples.regret() == ""


def test_picks_that_are_gone_count_nowhere(monkeypatch) -> None:
    told = {"kernel": "direct", "products": "fp32", "plan": "8x8", "bytes": 1}
    rows = [{**row, **told} for layer, ours in (("a", 2.0), ("b", 1.0))
            for row in case(layer, "1x1", ours, 1.0, 1.0)]  # fmt: skip
    monkeypatch.setattr(samples.machines, "stored", lambda path: rows * ("forward" in path.stem))
    assert [row["layer"] for row in samples.below()] == ["a"]
    pick = {name: rows[0][name] for name in gone.CASE} | {"plan": "4x4"}
    monkeypatch.setattr(gone, "today", lambda: {tuple(pick[name] for name in gone.CASE): pick})
    assert samples.below() == []
    first, *_, line = samples.networks()
    assert " 1 more cases were measured and count nowhere, " in first
    name, every, aim, tf32, slow, lost, *_ = (cell.strip() for cell in line.split("|")[1:])
    assert (name, every, aim, lost) == ("FP32, forward", "1.00 (1.00, 1)", "2.00 missed", "1")
    assert tf32 == "1.00 missed (0.71 with picks that are gone)"
    assert slow == "0.0% missed (50.0% with picks that are gone)"


def test_batches_of_networks_are_as_large_as_kernels_count() -> None:
    text = samples.batches()
    assert text.startswith("1 and 32 (unet3d 1 and 2, video_decoder 1: of 32 images a tensor would")
    for name, network in networks().items():
        layers = [parse(layer, 1).problem for layer in network["layers"]]
        most = max(math.prod(shape) for p in layers for shape in (p.x_shape, p.y_shape))
        assert (32 * most > MOST) == (name in text) == (network["batches"] != [1, 32])
        assert max(network["batches"]) * most <= MOST


def test_whole_networks_say_how_many(monkeypatch) -> None:
    row = {"step": "forward", "format": "fp32", "order": "last", "mode": "eager", "network": "n",
           "batch": 32, "device": "NVIDIA H", "warm": 20}  # fmt: skip
    rows = {"end_to_end": [row | {"method": m, "ms": ms} for m, ms in
                           (("winolab", 2.0), ("torch", 3.0), ("tf32", 1.0))]}  # fmt: skip
    monkeypatch.setattr(samples, "stored", lambda name: rows[name])
    *_, line = samples.whole()
    end = "| forward, FP32, channels last | 1 | 1.50 (1.50, n of 32) | 0.50 (0.50, n of 32) |"
    assert line == end
    rows["end_to_end"] += [row | {"method": "clock", "ms": 1.5, "torch_ms": 6.0, "tf32_ms": 1.2}]
    *_, line, clock = samples.whole()
    assert line == end
    assert clock == "| … plans by a clock | 1 | 4.00 (4.00, n of 32) | 0.80 (0.80, n of 32) |"
    assert not any(samples.EARLY in each for each in samples.whole())


def test_slow_layers_say_what_holds_them(monkeypatch) -> None:
    known = {"kernel": "direct", "products": "fp32", "plan": "8x8"}
    slow = [{**row, **known, "bytes": 1} for row in case("a", "1x1", 2.0, 1.0, 1.0)]
    fast = [{**row, **known, "bytes": 1} for row in case("b", "1x1", 1.0, 3.0, 1.0)]
    launch = {**known, "layer": "a", "direction": "forward", "launch": "k", "calls": 2,
              "device": "G", "seconds": 1e-6, "clock_hz": 1e9, "cycles": 100, "cycles_active": 40,
              "fma_instructions": 10, "multiprocessors": 4, "issue": 7.0, "shared_pipe": 3.0,
              "l2": 21.0, "dram": 11.0, "stalls": {"long_scoreboard": 3, "selected": 1},
              **dict.fromkeys(samples.counters.OPS, 0)}  # fmt: skip
    kept = {"counters_networks": [launch]}
    monkeypatch.setattr(samples, "stored", lambda name: kept[name])
    files = {"networks_forward": [*slow, *fast]}
    monkeypatch.setattr(samples.machines, "stored", lambda path: files.get(path.stem, []))
    assert [(row["layer"], row["torch_us"]) for row in samples.below()] == [("a", 1.0)]
    lines = samples.reasons()
    held = "L2 21 %, at work 40%, long scoreboard 75%; 2 launches, 100% in the main one"
    assert lines[4] == f"| a FP32 forward | 0.50 | 2.0 | direct | {held} |"
    assert lines[-1] == "All of them by kind: FP32 forward 1x1 1."
    assert samples.slowest() == [("a", "forward", "fp32", None, "direct", "8x8")]
    late = [{**row, **known, "plan": "4x4", "predicted_us": 50.0, "bytes": 1}
            for row in case("c", "1x1", 70.0, 210.0, 1.0)]  # fmt: skip
    soon = [{**row, "layer": "d", "us": 39.0, "predicted_us": 1.0} for row in late]
    files["networks_forward"] = [*slow, *fast, *late, *soon]
    assert samples.reasons()[-1] == "| c FP32 forward | 70.0 | 50.0 | direct | not counted yet |"
    assert [layer for layer, *_ in samples.slowest()] == ["c", "a"]
    kept["counters_networks"] = []
    assert samples.reasons() == []
