"""Sweeps: every combination once, resumed without loss, damaged lines reported and kept."""

from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from winolab import lines
from winolab.cli.screen.render import document
from winolab.cli.sweep import RowFile, cases, run
from winolab.measure import Case
from winolab.spread import spread

VALUES: dict[str, Any] = {
    "algorithm": ["gamma:4:2:3", "direct"],
    "input": ["1x4x6x3"],
    "filter": ["2x3x3"],
    "data": ["u12", "normal"],
    "sample": ["full"],
    "seed": [0, 1],
}


def numbers(row: dict) -> dict:
    return {key: value for key, value in row.items() if key != "seconds"}


def test_cases_are_all_combinations_in_order_each_once() -> None:
    todo = cases(**{**VALUES, "algorithm": ["gamma:4:2:3", "gamma:4:2:3@best", "direct"]})
    assert len(todo) == 2 * 2 * 2
    assert [case.seed for case in todo[:2]] == [0, 1]
    assert todo[0].algorithm == "gamma:4:2:3"
    assert todo[-1].algorithm == "direct"


def test_one_bad_combination_stops_the_sweep_before_it_starts() -> None:
    with pytest.raises(ValueError, match="serves 5 taps or more"):
        cases(**{**VALUES, "algorithm": ["direct", "gamma:8:4:5"]})


@pytest.mark.parametrize("empty", [{"filter": ["0x3x3"]}, {"input": ["1x4x6x0"]}])
def test_a_case_that_computes_nothing_stops_the_sweep_before_it_starts(empty: Any) -> None:
    with pytest.raises(ValueError, match="nothing to compute"):
        cases(**{**VALUES, **empty})


def test_operands_that_no_memory_holds_stop_the_sweep_before_it_starts() -> None:
    huge = {**VALUES, "input": ["99999x99999x99999x99999"], "filter": ["2x3x3"], "sample": ["9"]}
    message = (
        "input 99999x99999x99999x99999 and filter 2x3x3 are 4.00e.20 B of operands, and this "
        "machine has .* B of memory; expected smaller sizes"
    )
    with pytest.raises(ValueError, match=message):
        cases(**huge)


def test_rows_from_before_cases_had_strides_are_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    todo = cases(**VALUES)[:1]
    (row,) = run(todo)
    earlier = {k: v for k, v in row.items() if k not in ("stride", "dilation", "groups")}
    path.write_text(json.dumps(earlier) + "\n")
    with RowFile(path) as file:
        assert run(todo, file=file) == [row]
    assert len(path.read_text().splitlines()) == 1


def test_a_row_says_where_it_was_computed(tmp_path: Path) -> None:
    (row,) = run(cases(**{**VALUES, "algorithm": ["direct"], "data": ["u12"], "seed": [0]}))
    assert {"winolab", "commit", "python", "numpy", "device", "seconds", "samples"} <= row.keys()


def test_rows_do_not_depend_on_workers_or_order() -> None:
    todo = cases(**VALUES)
    alone = run(todo)
    together = run(todo[::-1], workers=2)[::-1]
    assert list(map(numbers, alone)) == list(map(numbers, together))


def test_a_finished_case_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo = cases(**VALUES)
    path = tmp_path / "rows.jsonl"
    with RowFile(path) as file:
        first = run(todo[:5], file=file)
    ran: list[Case] = []
    measure = Case.measure
    monkeypatch.setattr(
        Case, "measure", lambda case, *rest: (ran.append(case), measure(case, *rest))[1]
    )
    done: list[float] = []
    with RowFile(path) as file:
        rows = run(todo, file=file, advance=done.append)
    assert ran == todo[5:]
    assert rows[:5] == first
    assert sum(done) == pytest.approx(len(todo))
    assert len(path.read_text().splitlines()) == len(todo)


def leave_a_mark_later(mark: Path | None) -> None:
    if mark is None:
        raise ValueError("no mark")
    time.sleep(60)
    mark.touch()


def test_an_error_ends_all_workers(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(ValueError, match="no mark"):
        list(spread(leave_a_mark_later, [mark, None], 2))
    for child in multiprocessing.active_children():
        child.join()
    assert not mark.exists()


class Interrupting(list):
    """Items that an interrupt at the keyboard comes amid."""

    def __iter__(self):
        for item in super().__iter__():
            signal.raise_signal(signal.SIGINT)
            yield item


def test_an_interrupt_while_workers_begin_ends_all_of_them(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    # Where pytest runs in the background, the shell had it ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(spread(leave_a_mark_later, Interrupting([mark, mark]), 2))
    finally:
        signal.signal(signal.SIGINT, before)
    for child in multiprocessing.active_children():
        child.join()
    assert not mark.exists()


# One write: two workers' may come between the parts of another.
WORK = "import os, time; os.write(1, b'up\\n'); time.sleep(60)"


def test_workers_end_with_a_killed_parent() -> None:
    """They hold its standard output: its end is read only when they are gone, too."""
    script = f"from winolab.spread import spread; list(spread(exec, [{WORK!r}] * 2, 2))"
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    for _ in range(2):
        assert parent.stdout.readline() == b"up\n"
    parent.kill()
    assert parent.communicate(timeout=30) == (b"", None)


def test_an_interrupt_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo = cases(**VALUES)
    path = tmp_path / "rows.jsonl"
    measure = Case.measure

    def interrupted(case: Case, *rest) -> dict:
        if case == todo[3]:
            raise KeyboardInterrupt
        return measure(case, *rest)

    monkeypatch.setattr(Case, "measure", interrupted)
    with RowFile(path) as file, pytest.raises(KeyboardInterrupt):
        run(todo, file=file)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [Case.of_row(row) for row in rows] == todo[:3]


def test_damaged_lines_are_reported_and_kept(tmp_path: Path) -> None:
    todo = cases(**VALUES)[:4]
    path = tmp_path / "rows.jsonl"
    with RowFile(path) as file:
        run(todo, file=file)
    lines = path.read_text().splitlines()
    fields = json.loads(lines[2])
    del fields["seed"]
    unfinished = lines[3][: len(lines[3]) // 2]  # as a write that was cut off leaves it
    damaged = "\n".join([lines[0], "not json", json.dumps(fields), unfinished])
    path.write_text(damaged)
    with RowFile(path) as file:
        reports = [str(report) for report in file.damaged]
        assert list(file.rows) == todo[:1]
        rows = run(todo, file=file)
    for line, report in zip((2, 3, 4), reports, strict=True):
        assert report.startswith(f"{path}:{line}: ")
        assert "kept" in report
    assert "no field 'seed'" in reports[1]
    assert path.read_text().startswith(damaged + "\n")
    with RowFile(path) as file:
        assert list(file.rows) == todo
        assert [file.rows[case] for case in todo] == rows


NO_ROWS = [
    '{"seed": 0}', "[]", "3", '"text"', "null", "\x00\xff", '{"a": 1', "algorithm,mare",
    "[" * 200_000, '{"algorithm": ' + "[" * 200_000 + "]" * 200_000 + "}",
]  # fmt: skip


@pytest.mark.parametrize("line", NO_ROWS, ids=lambda line: repr(line[:20]))
def test_any_line_that_is_no_row_is_damaged_and_a_file_of_them_is_refused(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "rows.jsonl"
    (row,) = run(cases(**VALUES)[:1])
    kept = json.dumps(row).encode()
    content = line.encode("latin-1") + b"\n"
    path.write_bytes(content + kept)
    with RowFile(path) as file:
        assert [report.line for report in file.damaged] == [1]
        assert len(str(file.damaged[0])) < 500
        assert list(file.rows.values()) == [row]
    for end in (b"\n", b""):
        path.write_bytes(content.removesuffix(b"\n") + end)
        if line.startswith('{"algorithm": '):
            continue  # as a row begins
        with pytest.raises(ValueError, match="holds no rows of a sweep; choose another file"):
            RowFile(path)
        assert path.read_bytes() == content.removesuffix(b"\n") + end


@pytest.mark.parametrize("length", [1, 13, 14, 15, 40, -1])
def test_a_first_row_that_was_cut_off_is_gone_on_from(tmp_path: Path, length: int) -> None:
    path = tmp_path / "rows.jsonl"
    (row,) = run(cases(**VALUES)[:1])
    cut = json.dumps(row)[:length]
    path.write_text(cut)
    with RowFile(path) as file:
        assert [report.line for report in file.damaged] == [1]
        file.append(row)
    assert path.read_text() == f"{cut}\n{json.dumps(row)}\n"


@pytest.mark.parametrize("number", ["1" * 400, "-" + "9" * 400, "1" * 5000])
@pytest.mark.parametrize("field", ["mare", "seed", "samples"])
def test_numbers_of_400_digits_end_in_no_traceback(tmp_path: Path, number, field: str) -> None:
    path = tmp_path / "rows.jsonl"
    rows = run(cases(**VALUES)[:2])
    line = json.dumps(rows[1]).replace(
        f'"{field}": {json.dumps(rows[1][field])}', f'"{field}": {number}'
    )
    path.write_text(f"{json.dumps(rows[0])}\n{line}\n")
    with RowFile(path) as file:
        refused = field == "mare" or len(number) == 5000 or (field == "seed" and number[0] == "-")
        assert [report.line for report in file.damaged] == [2] * refused
        assert all(len(str(report)) < 500 for report in file.damaged)


def test_a_file_without_line_ends_is_refused_by_its_beginning(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "film.bin"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse terabyte: read whole, it would take all memory
    monkeypatch.setattr(lines, "LONGEST", 1 << 10)
    with pytest.raises(ValueError, match="holds no rows of a sweep"):
        RowFile(path)


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("mare", None, "no field 'mare'"),
        ("unbounded", None, "no field 'unbounded'"),
        ("mare", '"foo"', "mare is 'foo'; expected a number"),
        ("bound", "null", "bound is None"),
        ("max_abs", "true", "max_abs is True"),
        ("max_abs", "1e999", "max_abs is inf"),
        ("mare", "NaN", "NaN is no number in JSON; expected the text 'nan'"),
        ("seconds", "-Infinity", "expected the text '-inf'"),
        ("sample", "5", "not a row"),
    ],
)
def test_a_row_without_its_numbers_is_damaged(
    tmp_path: Path, field: str, text: str | None, reason: str
) -> None:
    todo = cases(**VALUES)[:2]
    path = tmp_path / "rows.jsonl"
    with RowFile(path) as file:
        good, bad = run(todo, file=file)
    del bad[field]
    line = json.dumps(bad) if text is None else f'{json.dumps(bad)[:-1]}, "{field}": {text}}}'
    path.write_text(f"{json.dumps(good)}\n{line}\n")
    with RowFile(path) as file:
        (report,) = map(str, file.damaged)
        assert report.startswith(f"{path}:2: ")
        assert reason in report
        assert list(file.rows) == todo[:1]


def test_numbers_that_are_not_finite_are_read_back_from_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    (row,) = run(cases(**VALUES)[:1])
    path.write_text(json.dumps({**row, "mare": "nan", "max_abs": "inf", "bound": 3}) + "\n")
    with RowFile(path) as file:
        assert not file.damaged


def test_a_document_is_strict_json() -> None:
    found = document({"rows": [{"a": float("nan")}, (float("-inf"), 1.5, None, "text")]})
    assert json.loads(found) == {"rows": [{"a": "nan"}, ["-inf", 1.5, None, "text"]]}


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("# A text\n\nnot rows\n")
    with pytest.raises(ValueError, match="holds no rows"):
        RowFile(path)
    assert path.read_text() == "# A text\n\nnot rows\n"


def test_an_unwritable_file_stops_the_sweep_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RowFile(tmp_path / "missing" / "rows.jsonl")
    with pytest.raises(IsADirectoryError):
        RowFile(tmp_path)


def test_rows_are_strict_json(tmp_path: Path) -> None:
    """E4M3 overflows to NaN, which is a text in a row; float() and pandas read it back."""
    path = tmp_path / "rows.jsonl"
    values = {**VALUES, "input": ["1x1x16x8"], "filter": ["1x1x9"]}
    values["algorithm"] = ["gamma:16:8:9@paper"]
    formats = "fp16,accumulate=fp8_e4m3,accumulation=sequential"
    with RowFile(path) as file:
        (row, *_) = run(cases(**values, precision=[formats]), file=file)
    assert row["max_abs"] == "nan"

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=refuse)
