"""Files of lines: one process at a time, whole lines or none, errors that name the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from winolab import lines
from winolab.lines import Lines, Taken, add, rewrite

if sys.platform == "win32":
    pytest.skip("devices, pipes and limits as POSIX has them", allow_module_level=True)
import resource


def test_rows_start_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    with Lines(path) as file:
        assert list(file.read()) == [(1, b'{"a": 1}\n'), (2, b'{"a"')]
        file.append({"a": 2})
        file.append({"a": 3})
    assert path.read_text() == '{"a": 1}\n{"a"\n{"a": 2}\n{"a": 3}\n'


@pytest.mark.parametrize(
    ("content", "right"),
    [
        (b"", True), (b"\n\n", True), (b'{"a": 1}\n3\n', True), (b'{"a": ', True),
        (b"a,b\n1,2\n", False),
        (b'{"a": \n', False), (b"3", False), (b"[" * 200_000, False), (b"\xff\x00", False),
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_not_added_to(tmp_path: Path, content: bytes, right) -> None:
    path = tmp_path / "c7.csv"
    path.write_bytes(content)
    if right:
        Lines(path).checked().close()
    else:
        with pytest.raises(ValueError, match=r"c7\.csv holds no rows, and is left as it is"):
            Lines(path).checked()
    assert path.read_bytes() == content
    Lines(path).close()  # nobody has it


def test_one_process_has_a_file_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    script = "import sys; from winolab.lines import Lines; Lines(sys.argv[1])"
    command = [sys.executable, "-c", script, str(path)]
    taken = f"another process is adding rows to {path}: wait until it ends\n"
    with Lines(path):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert taken in done.stderr
        with pytest.raises(ValueError, match="another process is adding rows"):
            Lines(path)
    subprocess.run(command, check=True)


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    script = (
        "import sys, time; from winolab.lines import Lines; file = Lines(sys.argv[1]); "
        "print('up', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        holder.kill()
    Lines(path).close()


def test_a_file_system_without_locks_is_written_to(tmp_path: Path, monkeypatch) -> None:
    def unknown(*_: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(lines.fcntl, "flock", unknown)
    with Lines(tmp_path / "rows.jsonl") as file:
        file.append({"a": 1})


def test_what_cannot_be_opened_is_named() -> None:
    with pytest.raises(OSError, match="Invalid argument") as stop:
        Lines("/proc/self/mem")  # open seeks in it, and does not say where
    assert stop.value.filename == "/proc/self/mem"


def test_devices_and_pipes_are_refused_at_once(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to("/dev/null")
    for path in ("/dev/null", "/dev/zero", "/dev/full", fifo, link):
        with pytest.raises(ValueError, match="is a device or a pipe; expected a file"):
            Lines(path)


@contextmanager
def full_after_20_bytes() -> Iterator[None]:
    """Files may have so many bytes: what is beyond fails as on a full disk, partly written. Not a
    fixture, behind which pytest writes of the test, to a file perhaps."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_names_the_file_and_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with full_after_20_bytes(), Lines(path) as file:
        file.append({"a": 1})
        with pytest.raises(OSError, match="File too large") as stop:
            file.append({"a": "0123456789"})
        assert stop.value.filename == str(path)
        assert path.read_text() == '{"a": 1}\n'
        file.append({"a": 2})
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n'


def test_an_append_is_on_the_disk_when_it_returns(tmp_path: Path, monkeypatch) -> None:
    synced = []
    path = tmp_path / "rows.jsonl"
    monkeypatch.setattr(lines.os, "fsync", lambda handle: synced.append(path.read_text()))
    with Lines(path) as file:
        file.append({"a": 1})
        assert synced == ['{"a": 1}\n']


def test_rows_wait_for_a_file_that_another_process_has(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Lines(path), pytest.raises(Taken, match="another process is adding rows"):
        add(path, [{"a": 1}], patience=0.1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: add(path, [{"a": i}, {"b": i}]), range(8)))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [{"b": row["a"]} for row in found[::2]] == found[1::2]
    assert sorted(row["a"] for row in found[::2]) == list(range(8))


def test_rows_are_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n')

    def rows():
        yield {"a": 2}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewrite(path, rows())
    assert path.read_text() == '{"a": 1}\n'
    rewrite(path, [{"a": 2}, {"a": 3}])
    assert path.read_text() == '{"a": 2}\n{"a": 3}\n'
    assert os.listdir(tmp_path) == ["rows.jsonl"]
