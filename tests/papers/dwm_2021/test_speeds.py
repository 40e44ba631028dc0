"""Tables that a GPU's rows fill: the claims that they judge, and what stands until they do."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

import winolab
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, stored
from experiments.harness.verdicts import Verdict
from papers.dwm_2021 import gpu_times, missing, speeds
from papers.dwm_2021.networks import networks
from winolab.problem import Problem

BY_NAME = {table.name: table for table in speeds.ALL}
FACTORS = {"dwm": 1.0, "winograd": 2.0, "direct": 1.5, "torch": 1.2, "fft": 3.0, "winolab": 0.5}


def rows(steps: str, us: dict[str, float], growth: float = 0.1) -> list[Row]:
    """Rows as the GPU writes them; PyTorch's time grows with the kernel."""
    found = []
    for step, label, problem in gpu_times.cases(steps):
        for method, times in us.items():
            more = growth * problem.filter[-1] if method == "torch" else 0
            found.append({
                "step": step, "label": label, "case": gpu_times.key(step, label, problem),
                "kernel_taps": list(problem.filter), "stride": list(problem.stride),
                "batch": problem.batch, "method": method, "us": 100 * (times + more),
                "bytes": 1000, "memory": 900 if method == "dwm" else 100,
            })  # fmt: skip
    return found


def claims(name: str, given: Sequence[Row]) -> list[bool | None]:
    return [cell.agrees for cell in BY_NAME[name].cells(given) if cell.claim]


def of_networks(given: Sequence[Row]) -> list[Cell]:
    """Table 13's claims: faster than Winograd, than cuDNN, short of the count, most on one."""
    return [cell for cell in BY_NAME["table13"].cells(given) if cell.claim]


@pytest.mark.parametrize("name", ["table5", "table6"])
def test_claims_hold_where_dwm_is_the_fastest_and_fail_where_it_is_not(name: str) -> None:
    held = claims(name, rows("layers", FACTORS))
    assert set(held) == {True}
    slow = claims(name, rows("layers", FACTORS | {"dwm": 9.0}, growth=-0.01))
    assert set(slow) == {False}
    assert len(held) == len(slow) == 5


def test_claims_on_networks_hold_and_fail() -> None:
    """Over cuDNN 1.2 times, less than any network's count; over Winograd most where it says."""
    given = [r | {"us": 3 * r["us"]} if (r["method"], r["label"]) == ("winograd", "3D-ShapeNet")
             else r for r in rows("networks", FACTORS, growth=0)]  # fmt: skip
    assert [cell.agrees for cell in of_networks(given)] == [True] * 4
    assert [c.agrees for c in of_networks(rows("networks", FACTORS, growth=1))] == [
        True, True, False, False,
    ]  # fmt: skip
    slow = rows("networks", FACTORS | {"dwm": 9.0}, growth=0)
    assert [cell.agrees for cell in of_networks(slow)] == [False, False, True, False]


def test_what_winograd_computes_nothing_of_is_not_reproduced() -> None:
    given = [r for r in rows("networks", FACTORS)
             if (r["method"], r["label"]) != ("winograd", "3D-ShapeNet")]  # fmt: skip
    assert of_networks(given)[-1].verdict is Verdict.NOT_REPRODUCED


def test_memory_is_compared_with_direct_products() -> None:
    given = rows("layers", FACTORS)
    found = BY_NAME["table14_measured"].cells(given)
    assert {cell.ours for cell in found} == {1900 / 1100, 1.0}
    assert [cell.agrees for cell in found if cell.claim] == [True, False, False, False, False]


def test_memory_s_growth_and_the_smaller_ratio_of_7x7x7_are_judged() -> None:
    """By the paper's account: more with the kernel, in 3-D up to five taps."""
    given = rows("layers", FACTORS)
    for row in given:
        of_dwm = 100 * row["kernel_taps"][-1] * (0.5 if row["kernel_taps"][-1] == 7 else 1)
        more = of_dwm if len(row["kernel_taps"]) == 3 else 100 * row["kernel_taps"][-1]
        row["memory"] = 1000 + more if row["method"] == "dwm" else 100
    assert claims("table14_measured", given) == [True] * 5


@pytest.mark.parametrize(
    ("yes", "of", "verdict"),
    [(4, 18, Verdict.OPEN), (500, 2000, Verdict.AGREES), (300, 1200, Verdict.AGREES),
     (0, 18, Verdict.DISAGREES), (18, 18, Verdict.DISAGREES), (500, 1000, Verdict.DISAGREES),
     (700, 2000, Verdict.DISAGREES), (200, 1000, Verdict.OPEN)],
)  # fmt: skip
def test_a_sample_decides_where_its_interval_does(yes: int, of: int, verdict: Verdict) -> None:
    cell = speeds.sampled("a quarter", 0.25, yes, of, (0.2, 0.3), 2000)
    assert cell.verdict is verdict
    assert cell.low <= cell.ours == yes / of <= cell.high
    assert bool(cell.note) == (verdict is Verdict.OPEN)


def test_an_interval_is_as_likely_to_miss_as_is_said() -> None:
    """Its ends: 4 of 18 or more, and 4 or fewer, have one chance in twenty."""
    low, high = speeds.part_interval(4 / 18, 18)
    assert stats.binom.sf(3, 18, low) == pytest.approx(0.05)
    assert stats.binom.cdf(4, 18, high) == pytest.approx(0.05)
    assert (round(low, 2), round(high, 2)) == (0.08, 0.44)


def test_what_is_open_says_how_many_would_decide() -> None:
    cell = speeds.sampled("a quarter", 0.25, 4, 18, (0.2, 0.3), 2000)
    (due,) = re.findall("about ([0-9]+) cases", cell.note)
    for of, decided in ((int(due), True), (int(due) - 1, False)):
        assert bool(speeds.decides(*speeds.part_interval(4 / 18, of), (0.2, 0.3))) == decided
    # On the edge no number of them would, but all.
    assert "all 2000 cases" in speeds.sampled("a fifth", 0.25, 200, 1000, (0.2, 0.3), 2000).note


def test_what_all_networks_do_is_open_while_some_are_not_measured() -> None:
    some = [r for r in rows("networks", FACTORS, growth=0) if r["label"] != "SPyNet"]
    *every, most = of_networks(some)
    assert [cell.verdict for cell in every] == [Verdict.OPEN] * 3
    assert all("SPyNet" in c.note and "VGG-16" not in c.note for c in (*every, most))
    slow = [r | {"us": 9 * r["us"]} if r["method"] == "dwm" else r for r in some]
    assert [c.verdict for c in of_networks(slow)] == [
        Verdict.DISAGREES, Verdict.DISAGREES, Verdict.OPEN, Verdict.DISAGREES,
    ]  # fmt: skip


def test_what_the_largest_kernels_do_is_open_while_some_are_not_measured() -> None:
    given = rows("layers", FACTORS)
    first = next(r["case"] for r in given if r["kernel_taps"] == [9, 9, 9])
    cells = BY_NAME["table6"].cells([r for r in given if r["case"] != first])
    (cell,) = (c for c in cells if "largest kernels" in c.column)
    assert (cell.verdict, cell.note) == (Verdict.OPEN, "1 of 8 cases not measured")


def test_a_part_of_the_grid_says_which_is_the_best() -> None:
    given = rows("grid", FACTORS)
    claim, shapes = BY_NAME["strategies_measured"].cells(given)
    assert (claim.ours, claim.agrees, shapes.ours) == (1, False, 2000)


def test_a_network_counts_where_all_its_layers_were_measured() -> None:
    given = rows("networks", FACTORS)
    named = {cell.where for cell in BY_NAME["table13"].cells(given)} - {"claim"}
    assert named == {network.name for network in networks()}
    (first, *_) = (r["case"] for r in given if r["label"] == "SPyNet")
    some = [r for r in given if r["case"] != first]
    assert {c.where for c in BY_NAME["table13"].cells(some)} == named - {"SPyNet"} | {"claim"}


def test_what_no_gpu_measured_is_not_reproduced() -> None:
    kept = {t.name for t in speeds.ALL if t.cells(stored(speeds.SOURCE))}
    assert {t.name for t in speeds.TABLES} == kept
    of_gpu = {t.name for t in missing.ALL} & {t.name for t in speeds.ALL}
    assert {t.name for t in missing.TABLES} & {t.name for t in speeds.ALL} == of_gpu - kept
    assert all(not table.cells([]) for table in speeds.ALL)


def test_phases_add_up_to_the_convolution() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 10, s).astype(float) for s in ((2, 9, 10, 4), (6, 5, 4, 2)))
    problem = Problem.of(x.shape, w.shape, stride=(2, 3), padding=2, groups=2)
    due = winolab.conv_forward(x, w, stride=(2, 3), padding=2, groups=2)
    assert (gpu_times.phases(x, w, problem) == due).all()


def test_phases_are_shown_where_they_were_timed() -> None:
    given = rows("grid", FACTORS | {"phases": 1.25})
    (shown,) = BY_NAME["strategies_measured"].cells(given)[2:]
    assert shown.ours == pytest.approx(1.2)
