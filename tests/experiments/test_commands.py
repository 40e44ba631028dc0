"""Every module that runs as a program takes its words by typer or argparse, and knows --help."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What programs of ours start: typer's imports would be timed, or the arguments are JSON.
WORKERS = ("experiments/measure/first_calls/inside.py", "experiments/measure/ways/served.py")
JSON = "tests/judge/pages/children.py"
BY_TYPER = re.compile(r"typer\.run\([\w.]+\)|process\.run\(app\)|app\(\)|command\(.*\)")
BY_ARGPARSE = "sys.exit(main())"


@cache
def programs() -> dict[str, ast.Module]:
    """The modules that have a part for when they run as programs, by path."""
    paths = [
        path
        for folder in ("experiments", "papers", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    known = {name: ast.parse(text) for name, text in texts.items() if "__main__" in text}
    return {name: module for name, module in known.items() if part(module)}


def part(module: ast.Module) -> list[ast.stmt]:
    """What runs of a module as a program alone."""
    blocks = [node for node in module.body if isinstance(node, ast.If)]
    return [n for b in blocks if ast.unparse(b.test) == "__name__ == '__main__'" for n in b.body]


def last(module: ast.Module) -> str:
    """What a module does as a program, behind imports; "" where that is more than one thing."""
    rest = [n for n in part(module) if not isinstance(n, ast.Import | ast.ImportFrom)]
    return ast.unparse(rest[0]) if len(rest) == 1 else ""


def test_every_program_takes_its_words_by_a_parser() -> None:
    """``experiments.report.documents --help`` wrote the documents anew."""
    assert len(programs()) > 65
    ignoring = []
    for name, module in programs().items():
        does, text = last(module), ast.unparse(module)
        by = "ArgumentParser(" in text if does == BY_ARGPARSE else BY_TYPER.fullmatch(does)
        if not by:
            ignoring.append(name)
    assert sorted(ignoring) == sorted((*WORKERS, JSON))


def test_help_is_shown_and_nothing_else_is_done() -> None:
    done = run("experiments.report.documents", "--help")
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    assert "--help" in done.stdout
    wrong = run("papers.winrs_2025.fits", "--nonsense")
    assert wrong.returncode == 2
    assert "No such option: --nonsense" in wrong.stderr


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_says_in_one_line_who_runs_it(name: str) -> None:
    done = run(name.removesuffix(".py").replace("/", "."), "--help")
    assert done.returncode == 1
    assert re.fullmatch(r"\w+ takes .*; \w+ runs it\n", done.stderr)


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The program, to its end."""
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
