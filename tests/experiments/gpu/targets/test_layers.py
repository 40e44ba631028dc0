"""Aims by kind of layer, from made-up rows: what counts, what is reached, what is said."""

from __future__ import annotations

import math

import pytest

from experiments.calibrate import gone
from experiments.gpu.targets import layers
from experiments.gpu.targets.layers import cells, pairs, picks, told
from experiments.harness.tables import Cell, rows_of
from experiments.harness.verdicts import Verdict
from experiments.measure.layers import GROUPED
from winolab.bench.networks import distinct

MACHINE = {"device": "NVIDIA H", "commit": "abc"}
DEEP, DENSE = "32x56x56x96>96x7x7p3g96", "32x56x56x128>128x3x3s2p1"


def case(layer: str, ours: float, torch: float, copy: float = 1.0, **more) -> list[dict]:
    """A case's rows: what is picked, PyTorch's in two memory orders, and a copy."""
    common = {**MACHINE, "layer": layer, "direction": "forward", "precision": "fp32",
              "bytes": 64e6} | more  # fmt: skip
    plan = {"chosen": True, "products": "fp32_split", "kernel": "Γ1(1,1)"}
    times = (("winolab", ours), ("torch", 2 * torch), ("torch", torch), ("copy", copy))
    return [{**common, "method": method, "us": us, **(plan | more if method == "winolab" else {})}
            for method, us in times]  # fmt: skip


def of(found: list[Cell], where: str) -> dict[str, Cell]:
    return {c.column: c for c in found if c.where == where}


def test_a_layer_of_two_lists_counts_once_as_the_last_run_has_it() -> None:
    old = case("32x56x56x96:7x7", 10.0, 20.0)
    new = case(DEEP, 10.0, 50.0, run="2026-11-29")
    for rows in ([*old, *new], [*new, *old]):
        (one,) = picks(rows)
        assert (one.torch, one.copy, one.depthwise) == (5.0, 0.1, 7)
    other = [row | {"device": "NVIDIA A"} for row in case(DENSE, 1.0, 1.0)]
    (one,) = picks([*other, *new])  # of one GPU alone
    assert one.name == DEEP


def test_depthwise_layers_are_judged_by_taps() -> None:
    rows = [*case(DEEP, 10.0, 50.0, copy=6.0),
            *case("1x14x14x384:7x7", 10.0, 20.0, copy=1.0, bytes=1e6),
            *case("1x28x28x240:5x5", 10.0, 9.0)]  # fmt: skip
    found = cells(rows)
    seven = of(found, "Depthwise: FP32 forward, 7×7")
    assert seven["geometric mean"].ours == pytest.approx(math.sqrt(10))
    assert seven["geometric mean"].verdict is Verdict.MISSED
    assert (seven["least"].ours, seven["least"].verdict) == (2.0, Verdict.REACHED)
    moved = seven[layers.MOVED]  # of the large layer alone
    assert (moved.ours, moved.verdict) == (0.6, Verdict.REACHED)
    assert DEEP in moved.note
    five = of(found, "Depthwise: FP32 forward, 5×5")
    assert (five["least"].ours, five["least"].verdict) == (0.9, Verdict.MISSED)
    absent = of(found, "Depthwise: BF16 forward, 3×3")["geometric mean"]
    assert absent.verdict is Verdict.MISSED
    assert "not measured" in absent.note


def test_an_aim_beyond_copy_speed_is_said() -> None:
    """What PyTorch takes over what a copy takes, whatever ours does."""
    rows = [*case(DEEP, 10.0, 50.0, copy=20.0),
            *case("1x14x14x384:7x7", 3.0, 20.0, copy=5.0)]  # fmt: skip
    seven = of(cells(rows), "Depthwise: FP32 forward, 7×7")[layers.BOUND]
    assert seven.ours == pytest.approx(math.sqrt(2.5 * 4))
    assert "the aim is beyond it" in seven.note  # of 4
    rows += case("1x56x56x96:7x7", 1.0, 90.0, copy=10.0)
    seven = of(cells(rows), "Depthwise: FP32 forward, 7×7")[layers.BOUND]
    assert "beyond" not in seven.note
    rows = case(DEEP, 10.0, 50.0, copy=20.0, direction="backward_filter")
    gradient = of(cells(rows), "Depthwise: FP32 filter gradient")[layers.BOUND]
    assert (gradient.ours, gradient.verdict) == (2.5, Verdict.SHOWN)


def test_grouped_layers_have_aims_of_their_own() -> None:
    rows = [*case("32x56x56x128>128x3x3p1g32", 1.0, 4.0),
            *case("32x28x28x192:192x3x3 groups 4", 1.0, 0.9),
            *case(DEEP, 1.0, 0.1), *case(DENSE, 1.0, 0.1)]  # fmt: skip
    found = of(cells(rows), "Grouped: FP32 forward")
    mean = found["geometric mean"]
    assert (mean.ours, mean.verdict) == (pytest.approx(math.sqrt(3.6)), Verdict.MISSED)
    assert (found["least"].ours, found["least"].verdict) == (0.9, Verdict.MISSED)
    (share,) = (c.ours for name, c in found.items() if name.startswith("measured, of"))
    every = {*GROUPED, *(v for v in distinct() if v.group == "grouped")}
    assert share == 2 / len({v.problem for v in every})
    half = of(cells(rows), "Grouped: FP16 filter gradient")["least"]
    assert (half.aim, half.verdict) == (0.95, Verdict.MISSED)  # nothing was measured


def test_picks_that_are_gone_are_left_out_of_their_part(monkeypatch) -> None:
    rows = [*case(DENSE, 1.0, 4.0), *case("32x224x224x3>64x7x7s2p3", 1.0, 0.5, plan="8x8")]
    pick = {name: rows[-4][name] for name in gone.CASE} | {"plan": "4x4"}
    monkeypatch.setattr(gone, "today", lambda: {tuple(pick[name] for name in gone.CASE): pick})
    strided = of(cells(rows), "Strided layers, stems too: FP32 forward")
    least = strided["least"]  # which it is missed with what was picked
    assert (least.ours, least.verdict) == (4.0, Verdict.MISSED)
    assert least.note.startswith("0.50 with picks that are gone; 32x56x56x128>128x3x3s2p1; 0 of 1")
    assert strided["geometric mean"].verdict is Verdict.MISSED  # 1.4 with it
    assert "4.00 (≥ 1 missed; 0.50 with picks that are gone; 32x56x" in "".join(layers.told(rows))
    rows[-4]["us"] = 0.1
    least = of(cells(rows), "Strided layers, stems too: FP32 forward")["least"]
    assert (least.ours, least.verdict) == (4.0, Verdict.REACHED)
    (line,) = (line for line in layers.told(rows) if line.startswith("**Strided"))
    assert line.endswith("NVIDIA H at abc; left out as their picks are gone: 1.")
    other = case("32x56x56x128:128x3x3/2", 1.0, 3.0, plan="8x8", run="2026-11-30")
    pick = {name: other[0][name] for name in gone.CASE} | {"plan": "4x4"}
    (one,) = picks([*case(DENSE, 1.0, 4.0), *other])  # of two lists, the one that is of today's
    assert one.name == DENSE
    (line,) = (line for line in layers.told([*case(DENSE, 1.0, 4.0)]) if line.startswith("**Strid"))
    assert "gone" not in line


def test_split_products_are_judged_by_what_binds() -> None:
    flops = 2 * 32 * 28**2 * 128 * 128 * 9
    us = flops / 120e6
    rows = case(DENSE, us, 1.0, copy=1.0)
    rows += case("32x56x56x64>256x1x1", 40.0, 1.0, copy=36.0)  # 3.3 GFLOP: 33 µs at the aim
    rows += case("1x14x14x512>512x3x3s2p1", 20.0, 1.0)  # too small
    rows += case("32x56x56x64>64x3x3p1", 1.0, 9.0, kernel="Γ8(6,3)")  # has transforms
    found = cells(rows)
    where = "Split FP32 without transforms: "
    worked = of(found, f"{where}TFLOPS, 5 GFLOP and more, forward")
    assert worked["geometric mean"].ours == pytest.approx(120)
    assert worked["least"].verdict is Verdict.REACHED
    name = f"{where}share of copy speed where that binds, 32 MB and more, forward"
    assert of(found, name)["least"].ours == 0.9


def test_n_by_1_is_held_against_1_by_n_of_the_same_channels() -> None:
    rows = [*case("32x17x17x160>192x7x1p3x0", 12.0, 1.0),
            *case("32x17x17x160>192x1x7p0x3", 9.0, 1.0),
            *case("32x17x17x160>160x1x7p0x3", 1.0, 1.0)]  # fmt: skip
    ((tall, wide),) = pairs(picks(rows))
    assert (tall.problem.filter, wide.problem.filter) == ((7, 1), (1, 7))
    least = of(cells(rows), "N×1 over 1×N: FP32 forward")["least"]
    assert (least.ours, least.verdict) == (0.75, Verdict.MISSED)


def nested(group: str, us: dict[tuple[str, str], float], error: float) -> list[dict]:
    common = {**MACHINE, "x": [1, 5, 60, 104, 384], "w": [384, 3, 3, 3, 384], "group": group,
              "padding": [[2, 0], [1, 1], [1, 1]]}  # fmt: skip
    named = {"method": "winolab", "kernel": "F(1×4×4,1×3×3)", "products": group,
             "relative_rms_n01": error}  # fmt: skip
    of = {("winolab", "named"): named, ("winolab", "picked"): named}
    return [{**common, **of.get(key, {"method": key[0], "order": "NHWC", "products": key[1]}),
             "role": key[1], "us": [0.0, time, 0.0]} for key, time in us.items()]  # fmt: skip


def test_nested_kernels_and_picks_are_judged_beside_pytorch_and_tf32() -> None:
    times = {("winolab", "named"): 1.0, ("winolab", "picked"): 2.0}
    rows = nested("bf16", {**times, ("torch", "bf16"): 2.5}, 1e-2)
    rows += nested("fp32", {**times, ("torch", "fp32"): 90.0, ("torch", "tf32"): 4.0}, 3e-6)
    rows += [{"products": "tf32", "direction": "forward", "relative_rms_u11": error}
             for error in (1e-6, 2e-4, 2e-4)]  # fmt: skip
    found = cells(rows)
    half = "Nested 3-D: BF16, over PyTorch channels-last, "
    assert of(found, f"{half}the fastest nested")["least"].ours == 2.5
    picked = of(found, f"{half}what is picked")["least"]
    assert (picked.ours, picked.verdict) == (1.25, Verdict.MISSED)
    full = of(found, "Nested 3-D: FP32, over TF32, what is picked")
    assert (full["least"].ours, full["least"].verdict) == (2.0, Verdict.REACHED)
    assert full["over TF32's"].ours == pytest.approx(0.015)
    assert full["over TF32's"].verdict is Verdict.MISSED


def test_copies_invariance_and_networks() -> None:
    rows = [{"step": "copies", "case": "32x64x56x56 of 4 B, first to last", "method": method,
             "us": us} for method, us in (("winolab", 10.0), ("copy", 9.0))]  # fmt: skip
    rows += [{"step": "copies", "case": "32x67x61x61 of 2 B, last to first", "method": method,
              "us": us} for method, us in (("winolab", 10.0), ("copy", 5.0))]  # fmt: skip
    call = {"call": "batch_invariant", "of": "8x56x56x64", "format": "float32"}
    rows += [call | {"invariant": i, "gpu_us": us} for i, us in ((False, 20.0), (True, 110.0))]
    rows += [{"network": network, "batch": 1, "format": "fp32", "order": "first", "mode": mode,
              "step": step, "method": method, "ms": ms}
             for network, step, mode, ours in (("vgg16", "training", "eager", 2.0),
                                               ("resnet50", "forward", "eager", 2.0),
                                               ("resnet50", "forward", "compiled", 3.0))
             for method, ms in (("winolab", ours), ("torch", 3.0), ("tf32", 1.0))]  # fmt: skip
    found = cells(rows)
    copies = "Copies to another memory order: elements of"
    aligned = of(found, f"{copies} 4 bytes, rows that are aligned")["least"]
    assert (aligned.ours, aligned.verdict) == (0.9, Verdict.REACHED)
    odd = of(found, f"{copies} 2 bytes, rows that begin anywhere")["least"]
    assert (odd.ours, odd.verdict) == (0.5, Verdict.MISSED)
    (cost,) = of(found, "Cost of batch_invariant=True: 3×3, 8x56x56x64").values()
    assert (cost.ours, cost.verdict) == (5.5, Verdict.SHOWN)
    assert of(found, "Whole networks: training, FP32")["geometric mean"].ours == 1.5
    (slow,) = of(found, "Whole networks: training, FP32 over TF32, filters of 3×3").values()
    assert (slow.ours, slow.verdict) == (0.5, Verdict.MISSED)
    least = of(found, "Whole networks: forward, FP32")["least"]
    assert least.ours == 1.0
    assert "resnet50 of 1, channels first, compiled; 0 of 2 beyond" in least.note
    assert not of(found, "Whole networks: training, ResNet-18 of one image")
    text = "\n".join(told(rows))
    assert "| 3×3, 8x56x56x64 | 5.50 (20.0 to 110.0 µs) |" in text
    assert "0.50 (≥ 0.85 missed; 32x67x61x61 of 2 B, last to first; 1 of 1 beyond)" in text


def test_strided_layers_and_stems_have_aims_of_their_own() -> None:
    rows = [*case(DENSE, 1.0, 4.0), *case("32x224x224x3>64x7x7s2p3", 1.0, 0.5),
            *case("32x56x56x64>64x3x3p1", 1.0, 0.1)]  # fmt: skip
    found = of(cells(rows), "Strided layers, stems too: FP32 forward")
    assert found["geometric mean"].ours == pytest.approx(math.sqrt(2))
    assert (found["least"].ours, found["least"].verdict) == (0.5, Verdict.MISSED)


def test_the_host_s_time_is_held_against_pytorch_s() -> None:
    rows = [{"call": call, "arrays": arrays, "host_us": us, "method": "any"} for call, arrays, us in
            (("conv2d", "torch", 15.0), ("torch.conv2d", "torch", 27.0),
             ("torch.conv2d, requires grad", "torch", 99.0), ("forward", "CuPy", 99.0),
             ("conv2d, both gradients", "torch", 1.0),
             ("torch.conv2d, both gradients", "torch", 99.0),
             ("conv2d, between other work", "torch", 40.0),
             ("torch.conv2d, between other work", "torch", 30.0))]  # fmt: skip
    hot, between = cells(rows)
    assert (hot.ours, hot.verdict) == (12.0, Verdict.MISSED)
    assert (between.ours, between.verdict) == (-10.0, Verdict.REACHED)
    assert "| between other work | -10 (≤ 10 reached;" in "\n".join(told(rows))


def test_without_rows_nothing_is_said() -> None:
    assert cells([]) == told([]) == []


def test_every_aim_of_the_kept_rows_was_measured() -> None:
    """But for shares of layers that move much, which samples may lack."""
    found = cells(rows_of(layers.LAYERS))
    parts = {c.where.partition(": ")[0] for c in found}
    assert len(parts) == 10
    assert not [c.where for c in found if math.isnan(c.ours) and c.column != layers.MOVED]
