"""The search's command: rows that it goes on from, and the table of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.calibrate import records
from experiments.calibrate.records import Task, best, main, table, tasks


def test_a_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file, output = tmp_path / "rows.jsonl", tmp_path / "table.json"
    main(r=[3], outputs=2, more=0, file=file, output=output)
    text = file.read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert {Task.of(row) for row in rows} == {Task(2, 3, 4)}
    assert len(rows) == rows[0]["candidates"]
    assert output.read_text() == "[\n" + ",\n".join(
        f" {json.dumps(row)}" for row in json.loads(output.read_text())
    ) + "\n]\n"  # fmt: skip
    main(r=[3], outputs=2, more=0, file=file, output=output)
    assert file.read_text() == text
    file.write_text(text.split("\n", 1)[1])  # a row lost: the task runs again
    main(r=[3], outputs=2, more=0, file=file, output=output)
    again = [json.loads(line)["points"] for line in file.read_text().splitlines()]
    assert {row["points"] for row in rows} <= {*again}


def test_a_format_that_rows_lack_is_simulated_for_them(tmp_path: Path) -> None:
    """With nothing searched; what was there stays as it was."""
    file, output = tmp_path / "rows.jsonl", tmp_path / "table.json"
    mine = [row for row in map(json.loads, records.ROWS.read_text().splitlines())
            if (row["n"], row["r"], row["states"]) == (2, 3, 4)]  # fmt: skip
    without = [row | {"errors": {k: v for k, v in row["errors"].items() if "int8" not in k}}
               for row in mine]  # fmt: skip
    file.write_text("".join(f"{json.dumps(row)}\n" for row in without))
    main(search=False, file=file, output=output)
    found = [json.loads(line) for line in file.read_text().splitlines()]
    for row, kept in zip(found, mine, strict=True):
        assert row["errors"].keys() == kept["errors"].keys()
        assert row | {"errors": 0} == kept | {"errors": 0}
        for name, error in row["errors"].items():
            assert error == pytest.approx(kept["errors"][name], rel=0.02)


def test_tasks_are_minimal_first() -> None:
    found = [*tasks([3, 5, 31], 4, 1)]
    extra = [t.states - t.n - t.r + 1 for t in found]
    assert extra == sorted(extra)
    assert Task(4, 3, 7) in found
    assert Task(4, 5, 9) in found
    assert Task(5, 5, 9) not in found
    assert [t for t in found if t.r == 31] == [Task(2, 31, 32), Task(2, 31, 33)]


def test_of_equals_in_error_the_cheapest_near_the_optimum_is_best() -> None:
    row = {"errors": {"u11 fp32": 1.0, "u12 fp32": 1.0}, "gain": 1.0, "optimum": 1.0}
    rows = [
        row | {"instructions": 9},
        row | {"instructions": 5},
        row | {"instructions": 1, "gain": 2.0},
        row | {"instructions": 1, "errors": {"u11 fp32": 1.2, "u12 fp32": 1.0}},
        row | {"instructions": 1, "errors": {"u11 fp32": None, "u12 fp32": 1.0}},
    ]
    assert best(rows, "fp32") is rows[1]


def test_the_kept_table_is_that_of_the_kept_rows() -> None:
    rows = [json.loads(line) for line in records.ROWS.read_text().splitlines()]
    kept = json.loads(records.TABLE.read_text())
    mine = [row for row in rows if (row["n"], row["r"]) in ((6, 3), (14, 3))]
    again = json.loads(json.dumps(table(mine)))
    assert again == [row for row in kept if (row["n"], row["r"]) in ((6, 3), (14, 3))]
