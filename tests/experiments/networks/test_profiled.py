"""Where a network's time goes: what kept rows of a GPU say, and what is said without one."""

from __future__ import annotations

import pytest
import torch

from experiments.harness.machines import stored
from experiments.networks import profiled
from experiments.networks.end_to_end import Case
from experiments.networks.profiled import RESULTS, functions, key, main, said, warm


def test_rows_have_times_that_fit_together() -> None:
    rows = stored(RESULTS)
    assert len({key(row) for row in rows}) == len(rows) > 0
    for row in rows:
        assert 0 < row["host_ms"] <= row["wall_ms"]
        assert sum(ms for ms, _ in row["longest"].values()) <= row["gpu_ms"] * 1.001
        assert said(row).startswith(f"{row['network']} {row['format']} channels ")
    assert {row["method"] for row in rows} == set(profiled.METHODS)


def test_what_takes_the_host_longest_is_told(monkeypatch) -> None:
    """Gradients' functions, too."""
    monkeypatch.setattr(profiled, "LONGEST", 10**4)
    monkeypatch.setattr(profiled, "WARM", 1)
    step = warm(Case("resnet18", 2, "fp32", "last", "eager", "training", tiny=True), "winolab")
    found = functions(step)["functions"]
    assert found["operators.py:directly"][1] == 20 + 2 * 20 - 1  # the first has no data's gradient
    assert found["derivatives.py:backward"][1] == 20
    assert all(ms >= 0 for ms, _ in found.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_profile(tmp_path) -> None:
    with pytest.raises(SystemExit, match="torch sees none"):
        main("resnet18", "fp32", "last", "32", 9.0, tmp_path / "rows.jsonl")
    assert not list(tmp_path.iterdir())
