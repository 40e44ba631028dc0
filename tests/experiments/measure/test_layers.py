"""Layers of networks: their shapes, and what their rows say."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from experiments.calibrate import gone
from experiments.calibrate.gone import told
from experiments.calibrate.plans import plan_of
from experiments.calibrate.rows import DEVICES, Timed
from experiments.harness.machines import shortened, stored
from experiments.measure import layers
from experiments.measure.layer_rows import latest, ratios, summarized
from experiments.measure.layers import (
    DEPTHWISE,
    GROUPED,
    KINDS,
    LISTS,
    RESULTS,
    STRIDED,
    Layer,
    measured,
    planned,
    plans,
)
from tests.support.stand_in import CuPy
from winolab.algorithm import Problem
from winolab.bench.contenders import Arrays, Contender, digest
from winolab.bench.networks import distinct, parse
from winolab.bench.timing import Times
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.planner.accuracy import U11, predicted_rms
from winolab.problem import shapes
from winolab.ref.algorithms import convolution

ROWS = {name: stored(RESULTS / f"{name}.jsonl") for name in LISTS}
ERRORS = {"fp32": 1e-6, "fp16": 5e-4, "bf16": 4e-3}  # of a relative RMS; halves round their result

TRANSFORMED = 4  # times as much, where operands are transformed


def test_each_layer_is_there_once() -> None:
    for listed, _ in LISTS.values():
        assert len({str(layer) for layer in listed}) == len(listed)
    for layer in DEPTHWISE:
        assert layer.problem.depthwise
        assert layer.problem.output == (-(-layer.size // layer.stride),) * 2
    for layer in STRIDED:
        assert layer.problem.groups == 1
    deep = next(layer for layer in STRIDED if layer.dilation == 12)
    assert deep.problem.output == (33, 33)


def test_depthwise_kinds_are_those_that_aims_are_not_set_for() -> None:
    problems = [layer.problem for layer in KINDS]
    assert all(p.depthwise for p in problems)
    causal = [p for p in problems if p.ndim == 1 and p.padding[0][1] == 0]
    assert {p.filter[0] for p in causal} >= {2, 3, 4, 7, 15, 31}
    assert all(p.output[0] == -(-p.input[0] // p.stride[0]) for p in causal)
    square = [p for p in problems if p.ndim == 2]
    assert {p.filter for p in square} >= {(r, r) for r in (*range(9, 23, 2), 31)}
    assert {(p.ndim, max(p.stride) > 1, max(p.dilation) > 1) for p in problems} >= {
        (n, s, d) for n in (1, 2, 3) for s, d in ((False, False), (True, False), (False, True))
    }
    assert not {str(layer) for layer in KINDS} & {str(layer) for layer in distinct()}


@pytest.mark.parametrize("direction", layers.DIRECTIONS)
def test_cases_and_picks_are_listed_without_a_gpu(direction: str, capsys) -> None:
    """Every kind has a kernel of its own family."""
    layers.main("depthwise_kinds", only=direction, dry="h200")
    lines = capsys.readouterr().out.splitlines()
    cases = [f"{v} {direction} {p} depthwise {p} " for v in KINDS for p in layers.PRECISIONS]
    for line, case in zip(lines, cases, strict=True):
        assert line.startswith(case)
        assert line.endswith(" µs")
    with pytest.raises(typer.BadParameter, match="no list 'kinds'; expected one of depthwise, "):
        layers.main("kinds", dry="h200")


@pytest.mark.parametrize("direction", layers.DIRECTIONS)
def test_errors_are_of_what_pads_one_side(direction: str) -> None:
    """What the definition says is off by its rounding, a wrong number by as much as it is."""
    p = Problem.of((2, 17, 6), (6, 4, 1), padding=((3, 0),), groups=6)
    first, second, _ = shapes(direction, p)
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype("float32") for s in (first, second))
    exact = getattr(convolution, direction)(a.astype(float), b.astype(float), p)
    rounded = exact.astype("float32")
    arrays: Any = SimpleNamespace(
        operands={"NHWC": [a, b]}, results={"NHWC": rounded}, values=lambda array: array
    )
    assert layers.relative_rms(direction, p, arrays) <= 2.0**-24
    rounded.flat[7] += 0.5
    off = 0.5 / np.sqrt((exact**2).sum())
    assert layers.relative_rms(direction, p, arrays) == pytest.approx(off, rel=1e-6)


def test_grouped_layers_are_grouped_and_not_depthwise() -> None:
    for layer in GROUPED:
        assert layer.problem.groups > 1
        assert not layer.problem.depthwise
        assert layer.group == "grouped"


def test_what_no_kernel_serves_is_left_out(monkeypatch) -> None:
    stem = next(layer for layer in STRIDED if layer.channels == 3)
    assert list(plans(stem, "forward", "fp16", H100).values()) == [True]

    def refused(request: object) -> None:
        raise ValueError("no kernel")

    monkeypatch.setattr(layers, "plan", refused)
    assert plans(stem, "forward", "fp16", H100) == {}
    (row,) = measured(stem, "forward", "fp16", {})
    assert (row["method"], row["layer"]) == ("refused", str(stem))
    assert list(summarized([row])) == ["forward fp16: no kernel for 1 layers"]


def test_cases_are_planned_by_all_cores_with_what_says_whether_rows_are_there() -> None:
    case = (Layer("C", 56, 96, 7), "forward", "fp32")
    ((same, found, digests),) = planned([case], H100)
    assert (same, found) == (case, plans(*case, H100))
    assert digests == {digest(next(iter(found)))}


def test_cases_whose_pick_is_gone_come_first_and_long_ones_last() -> None:
    long = Layer("C", 448, 512, 3, filters=512, batch=32)
    assert long.problem.macs > layers.LONG
    some = (*(Layer("C", size, 96, 7) for size in (56, 28, 14, 7)), long)
    same, new, changed, lost, last = ((layer, "forward", "fp32") for layer in some)
    found = {case: plans(*case, H100) for case in (same, new, changed, lost, last)}
    every: list[Any] = [(case, each, {"today's"}) for case, each in found.items()]
    kept = {}
    for case in (same, changed, lost, last):
        pick = next(p for p, chosen in found[case].items() if chosen)
        row = told(pick) | {"source": "once" if case in (changed, last) else "today's"}
        kept[(str(case[0]), *case[1:])] = row | ({"plan": "another"} if case == lost else {})
    assert [case for case, _ in layers.due(every, kept)] == [lost, changed, new, last]
    kept[(str(same[0]), *same[1:])]["source"] = ""  # cuDNN's fastest is asked for, and not there
    assert [case for case, _ in layers.due(every, kept)][:2] == [lost, changed]
    assert {case for case, _ in layers.due(every, kept)[2:4]} == {same, new}


def test_cases_of_picks_that_are_gone_are_outstanding(monkeypatch) -> None:
    (first, *_), directions = LISTS["grouped"]
    rows = [{"device": "NVIDIA H", "layer": str(first), "direction": d, "precision": "fp32",
             "method": "winolab", "chosen": True, "plan": "8x8"} for d in directions]  # fmt: skip
    monkeypatch.setattr(layers, "stored", lambda path: rows)
    every = len(GROUPED) * len(directions) * len(layers.PRECISIONS)
    assert layers.outstanding(["grouped"]) == (every - 3, layers.EACH)
    case = tuple(rows[0][name] for name in gone.CASE)
    monkeypatch.setattr(gone, "today", lambda: {case: rows[0] | {"plan": "4x4"}})
    assert layers.outstanding(["grouped"]) == (every - 2, layers.EACH)


def test_rows_that_were_added_last_count_and_name_their_machine_once(tmp_path) -> None:
    facts = {"device": "NVIDIA H100", "commit": "abc"}

    def rows(run: str, us: float) -> list[dict]:
        case = {"run": run, **facts, "layer": "L", "direction": "forward", "precision": "fp32"}
        return [
            {**case, "method": "winolab", "us": us, "chosen": True},
            {**case, "method": "winolab", "us": us + 1, "chosen": False},
            {**case, "method": "torch", "us": us + 2},
        ]

    other = [{**row, "layer": "M"} for row in rows("1", 5.0)]
    found = latest([*rows("1", 1.0), *other, *rows("2", 2.0)])
    assert [row["us"] for row in found] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    short = list(shortened(found))
    assert ["device" in row for row in short] == [True, False, False] * 2
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in short))
    assert stored(file) == found


def test_the_pick_comes_before_other_plans() -> None:
    found = plans(Layer("C", 56, 96, 7), "forward", "fp32", H100)
    assert list(found.values()) == [True, *[False] * layers.OTHERS[7]]
    assert all(p.kernel == "depthwise" for p in found)
    assert list(plans(Layer("E", 112, 32, 3), "forward", "fp32", H100).values()) == [True]


@pytest.mark.parametrize("name", LISTS)
def test_rows_are_of_layers_and_exact(name: str) -> None:
    groups = {str(layer): layer.group for layer in LISTS[name][0]}
    for row in ROWS[name]:
        assert groups[row["layer"]] == row["group"]
        assert row["device"].startswith("NVIDIA H")
        low, high = row["quartiles_us"]
        assert 0 < low <= row["us"] <= high
        if row["method"] == "winolab":
            kernel = row["kernel"]
            transforms = kernel[0] in "ΓΩF" and "(1,1)" not in kernel
            most = ERRORS[row["precision"]] * (TRANSFORMED if transforms else 1)
            if kernel == "thin" and row["direction"] == "backward_filter":
                most = max(most, 1.1 * predicted(row))
            assert 0 < row["relative_rms"] <= most


def predicted(row: dict[str, Any]) -> float:
    """The error of a row's plan on what was measured on, uniform numbers: a thin gradient's sums
    are as long as its blocks have positions, 33,280 of the largest layer."""
    what = (row["kernel"], row["products"], row["plan"], row["workspace"])
    layer, direction, group = parse(row["layer"]), row["direction"], row["precision"]
    return predicted_rms(
        plan_of(Timed("", layer, direction, group, DEVICES[row["device"]], *what, 0.0)), U11
    )


def test_ratios_are_of_the_pick_and_of_pytorch_s_best_order() -> None:
    case = {
        "layer": "32x8x8x8:3x3",
        "group": "3x3",
        "direction": "forward",
        "precision": "fp32",
        "bytes": 64e6,
    }
    rows = [
        {**case, "method": "winolab", "us": 20.0, "chosen": True},
        {**case, "method": "winolab", "us": 10.0, "chosen": False},
        {**case, "method": "torch", "us": 40.0, "layout": "NHWC"},
        {**case, "method": "torch", "us": 30.0, "layout": "NCHW"},
        {**case, "method": "copy", "us": 15.0},
    ]
    ((own, torch, copy),) = ratios(rows)
    assert (own["us"], torch, copy) == (20.0, 1.5, 0.75)
    assert list(summarized(rows)) == [
        "forward fp32 3x3: 1.50 times PyTorch over 1 layers, least 1.50 (32x8x8x8:3x3), "
        "0.75 of copy speed or more"
    ]


def test_cudnn_s_fastest_counts_where_it_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"winolab a": 20.0, "torch conv2d NHWC fp16": 40.0, "torch conv2d NCHW fp16": 50.0,
             "cudnn WINOGRAD NCHW tensor fp16": 30.0, "copy": 10.0}  # fmt: skip

    def contender(name: str, workspace: int | None = None) -> Contender:
        return Contender(name, "NHWC", workspace, {}, lambda arrays, space: None)

    mine, *torch, judge, _ = (contender(name, 64) for name in times)
    layer, seen = Layer("C", 8, 16, 3, filters=16, batch=1), []
    took = {name: Times(us / 2e6, us / 1e6, us / 5e5, 1) for name, us in times.items()}
    monkeypatch.setattr(driver, "cupy", CuPy)
    monkeypatch.setattr(driver, "device", lambda index: H100)
    monkeypatch.setattr(Arrays, "fill", lambda *_: None)
    monkeypatch.setattr(layers, "ours", lambda plans: [mine])
    monkeypatch.setattr(layers, "frameworks", lambda *_: torch)
    monkeypatch.setattr(layers, "fastest_of_cudnn", lambda *_: seen.append(_) or [judge])
    monkeypatch.setattr(
        layers, "interleave", lambda calls, **_: {n: t for n, t in took.items() if n in calls}
    )
    monkeypatch.setattr(layers, "relative_rms", lambda *_: 1e-4)
    found = plans(layer, "forward", "fp16", H100)
    plain = list(measured(layer, "forward", "fp16", found))
    assert not seen
    assert [torch for _, torch, _ in ratios(plain)] == [2.0]
    rows = list(measured(layer, "forward", "fp16", found, search=True))
    assert [row for row in rows if row["method"] != "cudnn"] == plain
    (row,) = (row for row in rows if row["method"] == "cudnn")
    assert (row["algorithm"], row["layout"], row["workspace"]) == ("WINOGRAD", "NCHW", 64)
    assert [torch for _, torch, _ in ratios(rows)] == [1.5]
    case = (str(layer), "forward", "fp16")
    assert layers.there(plain) == layers.there(rows) == {case: plain[0]}
    assert layers.there(rows, True) == layers.there(rows)
    assert layers.there(plain, True) == {case: plain[0] | {"source": ""}}
    monkeypatch.setattr(layers, "LONG", 1)
    assert len(list(measured(layer, "forward", "fp16", found, search=True))) == len(plain)


SIXTEEN = ("fp16", "bf16")
# A list, a note about it, the groups of its table's lines, and the columns of each.
NOTES = (
    (
        *("depthwise", "008-depthwise", ("3x3", "5x5", "7x7")),
        *(layers.DIRECTIONS, ("fp32", *SIXTEEN)),
    ),
    (
        *("strided", "009-strided-direct-products", ("strided", "dilated", "1x1")),
        *(layers.DIRECTIONS[:2], ("fp32", "fp16")),
    ),
    (
        *("strided", "036-implicit-gemm", ("strided", "dilated")),
        *(layers.DIRECTIONS[2:], ("fp32", "fp16")),
    ),
    ("grouped", "036-implicit-gemm", ("grouped",), layers.DIRECTIONS, ("fp32", "fp16")),
)


@pytest.mark.parametrize(("name", "note", "lines", "directions", "precisions"), NOTES)
def test_the_note_has_the_rows_ratios(name, note, lines, directions, precisions) -> None:
    """The mean and the least of each group of rows, to the last digit that the note shows."""
    text = (layers.ROOT / "docs" / "notes" / f"{note}.md").read_text()
    groups: dict[tuple[str, ...], list[float]] = {}
    for own, torch, _ in ratios(ROWS[name]):
        groups.setdefault((own["group"], own["direction"], own["precision"]), []).append(torch)
    columns = [(d, p) for d in directions for p in precisions]
    for group in lines:
        line = next(line for line in text.splitlines() if line.startswith(f"| {group} |"))
        found = [groups[group, *column] for column in columns]
        due = [f"{math.exp(sum(map(math.log, f)) / len(f)):.2f} ({min(f):.2f})" for f in found]
        assert [cell.strip() for cell in line.split("|")[2:-1]] == due
