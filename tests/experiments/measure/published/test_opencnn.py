"""openCNN's own code beside ours: what is left to run, what is refused, what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.measure.fused import beside
from experiments.measure.published import opencnn
from papers.opencnn_2021.speeds import AUTHORS
from papers.opencnn_2021.targets import BUILDS, cells_targets
from winolab.device import H100


def rows(case: beside.Case, **more: Any) -> list[dict[str, Any]]:
    return [
        {**beside.layer_of(case), "list": "authors", "variant": str(b), "tflops": 50.0 + i,
         "beside_ours_tflops": 81.0, "note": opencnn.NOTE, "device": "a GPU", **more}
        for i, b in enumerate(opencnn.BUILDS)
    ]  # fmt: skip


def test_the_builds_are_those_that_tables_have() -> None:
    assert {str(b) for b in opencnn.BUILDS} == set(BUILDS) >= set(AUTHORS)


def test_a_case_runs_again_unless_all_builds_have_rows_of_this_gpu_and_kind() -> None:
    every = opencnn.left([], "a GPU")
    assert len(every) == 16
    assert [case.problem.batch for case in every[:4]] == [128] * 4
    assert opencnn.left(rows(every[0]), "a GPU") == every[1:]
    assert opencnn.left(rows(every[0])[1:], "a GPU") == every
    assert opencnn.left(rows(every[0]), "another GPU") == every
    assert opencnn.left(rows(every[0], note="timed apart"), "a GPU") == every


def test_ours_are_offered_for_each_case() -> None:
    for case in opencnn.left([], "a GPU"):
        orders = [p.config.order for p in opencnn.policies(case, H100)]
        assert orders == ["nhwc", "nhwc", "chwn"]


def test_a_library_without_fused_multiply_adds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencnn, "ffma", lambda build: 0)
    with pytest.raises(RuntimeError, match="no FFMA"):
        opencnn.forward.__wrapped__(opencnn.BUILDS[0])


def test_sources_that_are_not_there_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencnn, "FOLDER", tmp_path)
    with pytest.raises(SystemExit, match=r"config\.hpp"):
        opencnn.built(tmp_path)


def test_the_aim_is_judged_by_what_ran_beside_it() -> None:
    every = opencnn.left([], "a GPU")
    own = [
        {**beside.layer_of(case), "tflops": 70.0, "sgemm_tflops": 50.0, "output_layout": layout,
         "bm": 64, "layout": "CHWN", "plan": ""}
        for case in every for layout in ("sts64", "yan")
    ]  # fmt: skip
    found = [cell.ours for cell in cells_targets(own + [r for c in every for r in rows(c)])
             if cell.column.startswith("speed over the authors")]  # fmt: skip
    assert found == [81 / 54] * 16
    assert opencnn.told(every[0], rows(every[0])).startswith(
        "Conv2 N=128: ours 81.0 TFLOPS, 1.500 times its fastest build; ampere_OPTSTS64 50.0"
    )
