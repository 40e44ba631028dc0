"""DWM's layers in FP16 on a GPU, with NumPy and the reference in its place."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from experiments.harness.verdicts import Verdict
from papers.dwm_2021 import ranges as simulated
from papers.dwm_2021 import texts
from papers.dwm_2021.measure import ranges
from tests.support.stand_in import CuPy
from winolab.algorithm import Problem
from winolab.bench import compare
from winolab.bench.contenders import Arrays, Contender
from winolab.device import H100
from winolab.gpu import driver

SMALL = Problem.of((1, 12, 12, 8), (4, 7, 7, 8), padding=3)
STRIDED = Problem.of((1, 9, 9, 4), (2, 5, 5, 4), stride=2, padding=2)


def of_torch(direction: str, problem: Problem, group: str) -> list[Contender]:
    """PyTorch on the CPU in both memory orders, of which one is asked for."""

    def run(arrays: Arrays, workspace: int) -> Any:
        x, w = (torch.from_numpy(np.asarray(a)).movedim(-1, 1) for a in arrays.operands["NHWC"])
        padding = [low for low, _ in problem.padding]
        return torch.nn.functional.conv2d(x, w, None, problem.stride, padding)

    return [Contender(f"torch {order}", order, None, {}, run) for order in ("NHWC", "NCHW")]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy in CuPy's place, planned for an H100."""
    monkeypatch.setattr(driver, "cupy", CuPy)
    monkeypatch.setattr(driver, "device", lambda index: H100)
    monkeypatch.setattr(ranges, "frameworks", of_torch)
    monkeypatch.setattr(ranges, "PEAKS", (0, 12, 14))
    monkeypatch.setattr(simulated, "PEAKS", (0, 12, 14))


def test_each_contender_is_counted_at_every_scale(host: None) -> None:
    """The reference's transforms have no scale: one tile of seven taps overflows, pieces do not."""
    with np.errstate(all="ignore"):
        rows = {row["column"]: row for row in ranges.measured("SPyNet", SMALL)}
    assert list(rows) == ["direct", "dwm", "winograd", "winograd, best points", "torch"]
    for row in rows.values():
        assert (row["taps"], row["stride"], row["in_channels"]) == ("7x7", "1x1", 8)
        assert (row["seed"], row["samples"], row["spread"]) == (0, 12 * 12 * 4, 20)
        assert len(row["not_finite"]) == 3
        assert row["not_finite"][0] == 0
        json.dumps(row, allow_nan=False)
    assert rows["winograd"]["not_finite"][2] > 0
    for column in ("direct", "dwm", "torch"):
        assert rows[column]["not_finite"] == [0, 0, 0]
    # FP64 is of the FP16 numbers: direct sums round their result alone.
    assert 0 < rows["direct"]["relative_rms"] <= 2.0**-11
    assert rows["winograd"]["relative_rms"] > 3 * rows["dwm"]["relative_rms"]


def test_data_have_the_range(host: None) -> None:
    x, w = ranges.data(Problem.of((1, 64, 64, 8), (8, 3, 3, 8)))
    assert np.sqrt((w**2).mean()) == pytest.approx(math.sqrt(2 / 72), rel=0.2)
    # log2 of the factor is uniform on [-20, 0]
    exponents = np.log2(np.abs(x))
    assert np.quantile(exponents, 0.9) - np.quantile(exponents, 0.1) == pytest.approx(16, abs=1)


def test_data_stay_finite(host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else outputs of whatever computes them would not be: 8 * 2**14 is beyond FP16."""
    x, w = np.full(SMALL.x_shape, 8, "float32"), np.zeros(SMALL.w_shape, "float32")
    monkeypatch.setattr(ranges, "data", lambda problem: (x, w))
    with np.errstate(all="ignore"):
        rows = {row["column"]: row for row in ranges.measured("SPyNet", SMALL)}
    assert rows["direct"]["not_finite"] == rows["torch"]["not_finite"] == [0, 0, 0]


def test_a_stride_has_no_tile(host: None) -> None:
    assert [row["column"] for row in ranges.measured("V2V", STRIDED)] == ["direct", "dwm", "torch"]


def test_every_kind_of_layer_is_there_once_by_its_largest_map() -> None:
    found = list(ranges.cases())
    kinds = {(name, p.in_channels, p.filter, p.stride) for name, p in found}
    assert len(found) == len(kinds)
    assert kinds == {(j.network, j.channels, j.taps, j.stride) for j in simulated._jobs(False)}
    assert ("SPyNet", (448, 1024)) in {(name, p.input) for name, p in found}


def test_what_is_there_is_not_measured_again(host: None, monkeypatch, tmp_path) -> None:
    every = [("SPyNet", SMALL), ("V2V", STRIDED)]
    compiled: list[int] = []
    monkeypatch.setattr(ranges, "cases", lambda: iter(every))
    monkeypatch.setattr(ranges.bench, "ready", lambda: None)
    monkeypatch.setattr(ranges.bench, "context", lambda: {"device": H100.name, "commit": "c"})
    monkeypatch.setattr(ranges, "compile_sources", lambda s: compiled.append(len(s)) or len(s))
    monkeypatch.setattr(ranges, "cores", lambda: 1)
    monkeypatch.setattr(compare.driver, "cupy", CuPy)
    output = tmp_path / "rows.jsonl"
    with np.errstate(all="ignore"):
        ranges.main(0, output)
        assert not output.exists()
        ranges.main(100, output)
    kept = output.read_text()
    rows = [json.loads(line) for line in kept.splitlines()]
    assert [row["network"] for row in rows] == ["SPyNet"] * 5 + ["V2V"] * 3
    assert {row["commit"] for row in rows} == {"c"}
    ranges.main(100, output)
    assert output.read_text() == kept
    assert compiled[0] == compiled[1] > compiled[2] == 0


def rows(network: str, taps: str, broken: dict[str, float], lost: dict[str, float]) -> list[dict]:
    """Made-up rows: the part that is not finite from scale 2**8 on."""
    common = {"network": network, "taps": taps, "stride": "1x1"}
    first = simulated.PEAKS.index(8)
    return [
        {**common, "column": column, "relative_rms": lost[column],
         "not_finite": [part * (i >= first) for i in range(len(simulated.PEAKS))]}
        for column, part in broken.items()
    ]  # fmt: skip


def test_claims_are_judged_of_networks_with_rows() -> None:
    lost = {"winograd": 1e-2, "dwm": 1e-3, "direct": 1e-4}
    broken = {"winograd": 0.5, "dwm": 0.0, "direct": 0.0}
    assert simulated.MEASURED.cells([]) == []
    cells = simulated.MEASURED.cells(rows("SPyNet", "7x7", broken, lost))
    claims = [cell for cell in cells if cell.claim]
    assert [cell.verdict for cell in claims] == [Verdict.AGREES] * 4
    whole = rows("SPyNet", "7x7", dict.fromkeys(broken, 0.0), lost)
    first, *others = (cell for cell in simulated.MEASURED.cells(whole) if cell.claim)
    assert (first.ours, first.verdict) == (1, Verdict.DISAGREES)  # nothing has overflowed
    (lost_less,) = others
    assert "loses less" in lost_less.column
    told = " ".join(texts.RANGES_ON_GPU.found(cells))
    assert "4 of 4 hold." in told
    assert "from a scale of 256 on (SPyNet, 7×7 taps" in told
    told = " ".join(texts.RANGES_ON_GPU.found(simulated.MEASURED.cells(whole)))
    assert "overflows from" not in told
    assert "On 1 of the kinds of layers" in told
    lost["winograd"] = 1e-4
    cells = simulated.MEASURED.cells(rows("TOFlow", "9x9", broken, lost))
    assert [cell.verdict for cell in cells if cell.claim] == [Verdict.DISAGREES]
