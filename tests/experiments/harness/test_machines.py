"""Rows whose machine is said once a run."""

from __future__ import annotations

from experiments.harness.machines import FACTS, filled, shortened, stored
from winolab.lines import rewrite

ONE, OTHER = ({"device": device, "commit": "c", "run": run} for device, run in (("a", 1), ("b", 2)))
ROWS = [ONE | {"us": 1}, OTHER | {"us": 2}, ONE | {"us": 3}, {"us": 4, "device": "d"}]


def test_what_a_file_leaves_out_is_read_again(tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    assert stored(path) == []
    rewrite(path, shortened(ROWS))
    lines = path.read_text().splitlines()
    assert [sum(name in line for name in FACTS) for line in lines] == [2, 2, 0, 1]
    assert stored(path) == ROWS


def test_a_row_keeps_its_own_facts() -> None:
    """Where rows of a run say different things, as of two GPUs that measured at once."""
    assert filled([ONE, {"run": 1, "device": "z"}])[1] == {"run": 1, "device": "z", "commit": "c"}
