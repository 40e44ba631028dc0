"""Examples of the help: copied from a screen of 80 columns, each line is a command that parses."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from winolab.cli.command import app


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))
GROUPS = {path for path, command in ALL.items() if hasattr(command, "commands")}


def examples(path: tuple[str, ...]) -> list[str]:
    """Lines of the help that begin with the command's name, as they stand on the screen."""
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    lines = [line.strip() for line in shown.stdout.splitlines()]
    return [line for line in lines if line.startswith("winolab ")]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_examples_survive_copying(path: tuple[str, ...]) -> None:
    found = examples(path)
    written = [line.strip() for line in ALL[path].help.splitlines()]
    assert found == [line for line in written if line.startswith("winolab ")]
    assert found or path == ("plan",)
    for line in found:
        _, *words = shlex.split(line)
        named = max((p for p in ALL if p == tuple(words[: len(p)])), key=len)
        assert named == path or path in GROUPS
        ALL[named].make_context("winolab", words[len(named) :])  # raises a usage error
