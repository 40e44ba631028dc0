"""Sweeps on Dask: the same rows, a lost worker's cases again, and nothing left by an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from winolab.cli import process
from winolab.cli.command import app
from winolab.spread import spread

SWEEP = [
    *(sys.executable, "-m", "winolab", "accuracy", "--algorithm", "direct,gamma:4:2:3"),
    *("--input", "2x40x8", "--filter", "8x3", "--seed", "0,1", "--json"),
]
# The first process that is given 3 ends, as one does that is lost.
LOST = """
import os, sys
from pathlib import Path
from winolab.spread import spread

def work(i):
    mark = Path(sys.argv[1] if len(sys.argv) > 1 else MARK)
    if i == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return i * i, os.getpid()

MARK = os.environ["MARK"]
if __name__ == "__main__":
    print(*sorted(result for _, (result, _) in spread(work, range(8), 2, "local")))
"""
LONG = """
import signal
import time
from winolab.spread import spread

def work(i):
    time.sleep(0.3)
    return i

if __name__ == "__main__":
    # what runs the tests in the background may have it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for _, i in spread(work, range(1000), 2, WHERE):
        print(i, flush=True)
"""


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rows_are_those_of_this_process(tmp_path: Path) -> None:
    """Written once, and taken from the file by the next call."""
    pytest.importorskip("distributed")
    plain = json.loads(CliRunner().invoke(app, [*SWEEP[3:], "--workers", "1"]).stdout)
    out = tmp_path / "rows.jsonl"
    dask = json.loads(run(*SWEEP, "--workers", "1", "--dask", "local", "--out", str(out)))
    for row in (*plain, *dask):
        del row["seconds"]
    assert dask == plain
    text = out.read_text()
    assert len(text.splitlines()) == 4
    again = CliRunner().invoke(app, [*SWEEP[3:], "--dask", "local", "--out", str(out)])
    assert again.exit_code == 0, again.output
    assert out.read_text() == text


def test_a_lost_worker_is_a_case_again(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    script, mark = tmp_path / "lost.py", tmp_path / "mark"
    script.write_text(LOST)
    assert run(sys.executable, str(script), MARK=str(mark)) == "0 1 4 9 16 25 36 49\n"
    assert mark.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="process groups by /proc")
@pytest.mark.parametrize("where", ["local", None])
def test_an_interrupt_leaves_no_process(where: str | None, tmp_path: Path) -> None:
    """At the keyboard, all processes of a terminal get it."""
    if where:
        pytest.importorskip("distributed")
    script = tmp_path / "long.py"
    script.write_text(LONG.replace("WHERE", repr(where)))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    running = subprocess.Popen([sys.executable, str(script)], start_new_session=True, **pipes)
    assert running.stdout is not None
    first = running.stdout.readline().strip()
    assert first in ("0", "1")
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(60) != 0
    running.stdout.close()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("workers are left")


def test_without_dask_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"Dask is not installed: pip install '.\[dask\]'"):
        list(spread(abs, [1], 1, "local"))


def test_an_address_that_is_none_is_told() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match=r"no scheduler of Dask answers at 'nonsense'.*expected"):
        list(spread(abs, [1], 1, "nonsense"))


def test_without_a_terminal_progress_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(process.time, "monotonic", lambda: now[0])
    with process.progress(quiet=False) as bar:
        assert isinstance(bar, process.Lines)
        task = bar.add_task("cases", total=100)
        for _ in range(40):
            now[0] += 5
            bar.advance(task, 1)
        now[0] += 200
        bar.update(task, completed=120)  # the total was an estimate
    assert capsys.readouterr().err.splitlines() == [
        "winolab: 4 of 100 cases, left: about 8 min",
        "winolab: 8 of 100 cases, left: about 8 min",
        "winolab: 16 of 100 cases, left: about 7 min",
        "winolab: 32 of 100 cases, left: about 6 min",
        "winolab: 120 of 120 cases, left: about 0 s",
    ]
    process.announce("cases", 3, process.EVERY - 1, 2)
    assert capsys.readouterr().err == ""
    process.announce("cases", 300, 9000, 2)
    assert capsys.readouterr().err == "winolab: 300 cases, about 2.5 h on 2 processes\n"
