"""Trials beside protected pages, each in a process of its own, which may end.

    python -m tests.judge.pages.children '[["kernel.so:name", "what it serves"]]'

prints a line of JSON a kernel: what ended it, and what was said of that; or what was found.
What trials import, and the tolerance of the one case, are there before the first of them; PyTorch,
before the first kernel that needs it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from winolab.judge.claim import Claim
from winolab.judge.loading import load
from winolab.judge.pages import trial
from winolab.judge.trial import Case, Judge
from winolab.problem import Problem

# No size is a multiple of 16 bytes, or of a page.
CASE = Case(Problem.of((1, 5, 6, 3), (5, 3, 3, 3), padding=1), place=trial.PLACE)


def ends(kernels: Sequence[tuple[str, str]]) -> list[list[str]]:
    """What ``told`` returns of each kernel and of what it serves."""
    command = [sys.executable, "-m", "tests.judge.pages.children", json.dumps(kernels)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root)
    return [json.loads(line) for line in done.stdout.splitlines()]


def told(named: str, serves: str) -> tuple[str, str]:
    """The signal that ended a kernel and what its trial says of that; or "" and the finding."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        judge = Judge(load(named, serves=serves), Claim())
        found = trial.run(judge, CASE, lambda said: tell(writing, said))
        left = f"left: {found.left}" if found.left else ""
        tell(writing, f"{found.finding.check}: {found.finding.said}" if found.finding else left)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        *_, last = ["", *pipe.read().splitlines()]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return signal.Signals(-code).name if code < 0 else "", last


def tell(pipe: int, said: str) -> None:
    """Write a line."""
    os.write(pipe, f"{said}\n".encode())


if __name__ == "__main__":
    trial.run(Judge(load("winolab:conv_forward"), Claim()), CASE, lambda said: None)
    for name, what in json.loads(sys.argv[1]):
        if "torch" in name:
            importlib.import_module("torch")
        print(json.dumps(told(name, what)), flush=True)
