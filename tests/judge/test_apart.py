"""A kernel that ends its process, or never ends, is refused; the process that judges goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from winolab.judge import apart, judgement
from winolab.judge.apart import judge_apart
from winolab.judge.claim import Claim
from winolab.judge.judgement import Judgement
from winolab.judge.trial import Case
from winolab.problem import Problem

PLAIN = "padding=0 stride=1 dilation=1 groups=1"
KERNELS = str(Path(__file__).with_name("kernels.py"))


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [
        ("ends", 60, "crash: it ended the process (SIGSEGV) [seen with 2x12x10x8>16x3x3,"),
        ("hangs", 2, "hang: a call took longer than 2 s [seen with 2x12x10x8>16x3x3,"),
    ],
)
def test_what_ends_or_never_ends_is_refused(name: str, limit: float, said: str) -> None:
    numbers: list[int] = []
    found, untimed = judge_apart(
        f"{KERNELS}:{name}", Claim(), {"serves": PLAIN}, {"count": 0}, limit=limit,
        told=numbers.append,
    )  # fmt: skip
    assert not found
    assert said in found.verdict
    assert (numbers, untimed, found.rows) == ([0], [], [])


class Pipe:
    """The other end of what a process would write to."""

    def __init__(self) -> None:
        self.sent: list[tuple] = []

    def send(self, message: tuple) -> None:
        self.sent.append(message)


def test_it_sends_trials_times_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart.os, "dup2", lambda *_: None)
    few = [Case(Problem.of((1, n, 6, 2), (2, 3, 3, 2))) for n in range(4, 16)]
    monkeypatch.setattr(judgement, "cases", lambda *_: few)
    problem = Problem.of((1, 6, 6, 2), (2, 3, 3, 2), padding=1)
    layers = [("even", problem), ("odd", problem)]
    monkeypatch.setattr(apart.speed, "timed", _timed)
    pipe = Pipe()
    apart._run(pipe, f"{KERNELS}:right", Claim(), {}, {"count": 0}, layers)  # pyright: ignore[reportArgumentType]
    assert [m[0] for m in pipe.sent[:4]] == ["trial", "call", "call", "call"]
    *trials, (kind, found, untimed) = [m for m in pipe.sent if m[0] != "call"]
    assert [message[:2] for message in trials] == [("trial", n) for n in range(13)]
    assert (kind, found.times, untimed) == ("done", [{"layer": "even"}], ["odd: both ends"])
    assert isinstance(found, Judgement)
    assert found
    pipe = Pipe()
    apart._run(pipe, f"{KERNELS}:nobody", Claim(), {}, {}, [])  # pyright: ignore[reportArgumentType]
    ((kind, error),) = pipe.sent
    assert kind == "error"
    assert isinstance(error, ValueError)
    assert str(error) == f"{KERNELS} has no 'nobody'; expected the name of a function in it"


def _timed(candidate: object, claim: Claim, problem: Problem, name: str) -> list[dict]:
    if name == "odd":
        raise apart.Declined("both ends")
    return [{"layer": name}]


def test_a_file_that_never_ends_loading_is_no_kernel(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "slow.py"
    file.write_text("import time\ntime.sleep(1e6)\n")
    monkeypatch.setattr(apart, "LOADING", 0.5)
    with pytest.raises(ValueError, match=r"conv: loading took longer than 0\.5 s"):
        judge_apart(f"{file}:conv", Claim(), {}, {})


JUDGING = """
from winolab.judge.apart import judge_apart
from winolab.judge.claim import Claim
judge_apart({kernel!r}, Claim(), {{}}, {{"count": 0}})
"""
SLEEPING = """
import os, pathlib, time
def conv(x, w, **geometry):
    place = pathlib.Path({place!r})
    place.with_suffix(".new").write_text(str(os.getpid()))
    place.with_suffix(".new").replace(place)
    time.sleep(1e6)
"""


def test_whoever_ends_a_judgement_ends_the_kernel(tmp_path: Path) -> None:
    """It went on, and wrote a traceback where nobody read any more."""
    place, file = tmp_path / "place", tmp_path / "sleeping.py"
    file.write_text(SLEEPING.format(place=str(place)))
    judging = subprocess.Popen(
        [sys.executable, "-c", JUDGING.format(kernel=f"{file}:conv")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(place.exists)
    judging.terminate()
    assert judging.communicate(timeout=60)[1] == ""  # which the kernel holds open, too
    until(lambda: not Path(f"/proc/{place.read_text()}").exists())


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)
