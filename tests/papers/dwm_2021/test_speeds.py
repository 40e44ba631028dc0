"""Tables that a GPU's rows fill: the claims that they judge, and what stands until they do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import winolab
from experiments.harness.jobs import Row
from experiments.harness.tables import stored
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


@pytest.mark.parametrize(("name", "step"), [("table5", "layers"), ("table6", "layers"),
                                            ("table13", "networks")])  # fmt: skip
def test_claims_hold_where_dwm_is_the_fastest_and_fail_where_it_is_not(name, step) -> None:
    held = claims(name, rows(step, FACTORS))
    assert set(held) == {True}
    slow = claims(name, rows(step, FACTORS | {"dwm": 9.0}, growth=-0.01))
    assert set(slow) == {False}
    assert len(held) == len(slow) == (2 if name == "table13" else 4)


def test_memory_is_compared_with_direct_products() -> None:
    found = BY_NAME["table14_measured"].cells(rows("layers", FACTORS))
    assert {cell.ours for cell in found} == {1900 / 1100}
    assert claims("table14_measured", rows("layers", FACTORS)) == [True]


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
