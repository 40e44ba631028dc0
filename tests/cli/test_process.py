"""The command as a process: closed and full streams, other encodings, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from winolab.cli.environment import REPRODUCE
from winolab.cli.sweep import RowFile

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "winolab"]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
SMALL = ("--algorithm", "direct", "--input", "1x6x8x4", "--filter", "2x3x3")
HUGE = ("--algorithm", "direct", "--input", "64x96x96x64", "--filter", "64x3x3", "--sample", "full")


def winolab(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with what it printed."""
    env = {**ENV, **how.pop("env", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8", **how}
    return subprocess.run([*COMMAND, *arguments], env=env, check=False, timeout=120, **pipes)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """``$W`` is the command."""
    text = f"W() {{ '{sys.executable}' -m winolab \"$@\"; }}; {line}"
    return subprocess.run(
        ["bash", "-c", text], env=ENV, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_characters_that_an_encoding_lacks_are_spelled(encoding: str) -> None:
    done = winolab("transforms", "2", "3", env={"PYTHONIOENCODING": encoding}, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "F(2,3)   alpha = 4 multiplications for 2 outputs of 3 taps" in done.stdout
    assert "y = AT[(G g) * (BT d)], proved exactly" in done.stdout
    assert f"AT (2 {'x' if encoding == 'ascii' else '×'} 4)" in done.stdout


def test_messages_are_spelled_too() -> None:
    refused = winolab("transforms", "2", "3", "--points", "Γü€", env={"PYTHONIOENCODING": "ascii"})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert r"unknown points 'Gamma\xfc\u20ac'" in refused.stderr


def test_a_closed_standard_output_is_one_line() -> None:
    done = shell("W transforms 2 3 >&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("winolab: standard output is closed; expected a terminal, a file")
    assert done.stderr.count("\n") == 1


def test_a_closed_standard_error_loses_messages_only(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    done = shell(f"W accuracy {' '.join(SMALL)} --workers 1 --json --out '{rows}' 2>&- <&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [json.loads(rows.read_text())]
    refused = shell("W transforms 2 2>&-")
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", "")


@pytest.mark.parametrize("arguments", ["transforms 2 3", "transforms 16 9"])
def test_a_full_standard_output_is_one_line(arguments: str) -> None:
    done = shell(f"W {arguments} >/dev/full")
    assert done.returncode == 2
    assert done.stderr == "winolab: standard output: No space left on device\n"


@pytest.mark.parametrize("size", ["2", "16"])
def test_a_reader_that_has_enough_gets_no_traceback(size: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = winolab("transforms", size, "9", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def _listens() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_ends_a_sweep_its_workers_and_its_lock(
    tmp_path: Path, number: int, code: int
) -> None:
    """Nobody holds the pipes any more: that is when communicate returns."""
    rows = tmp_path / "rows.jsonl"
    sweep = [*COMMAND, "accuracy", *HUGE, "--seed", "0,1,2", "--workers", "2", "--out", str(rows)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A shell's background job ignores SIGINT, and hands that down.
    with subprocess.Popen(sweep, env=ENV, preexec_fn=_listens, **pipes) as running:
        while not rows.exists():
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (code, "")
    assert "Traceback" not in err
    if number == signal.SIGINT:
        *before, last = err.splitlines()
        assert last == f"winolab: interrupted; its rows are in {rows}; the same command goes on"
        assert all(line.startswith("winolab: 3 cases, about ") for line in before)
    RowFile(rows).close()  # nobody has it


def test_reproduce_becomes_the_checkouts_command(tmp_path: Path) -> None:
    """Which gets arguments and signals, and whose exit code it is."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "winolab"\n')
    script = tmp_path.joinpath(*REPRODUCE.split(".")).with_suffix(".py")
    script.parent.mkdir(parents=True)
    script.write_text("import os, sys; print(os.getpid(), os.getcwd(), sys.argv[1:]); sys.exit(7)")
    arguments = ["reproduce", "lavin_gray_2016", "table4", "--full", "--update", "--workers", "2"]
    with subprocess.Popen(
        [*COMMAND, *arguments], env=ENV, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        out, err = running.communicate(timeout=60)
    passed = ["lavin_gray_2016", "table4", "--full", "--update", "--workers", "2"]
    assert out == f"{running.pid} {tmp_path} {passed}\n"
    assert err == f"winolab: running experiments of the checkout {tmp_path}\n"
    assert running.returncode == 7


def test_reproduce_lists_the_tables_as_one_document() -> None:
    done = winolab("reproduce", "--list", "--json", cwd=ROOT)
    read = json.loads(done.stdout)
    assert {"paper": "lavin_gray_2016", "table": "table3"}.items() <= read[2].items()
