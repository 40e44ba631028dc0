"""The tutorials: their Python is doctested by pytest's testpaths; commands print what is shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import winolab
import winolab.jax
import winolab.torch
from docs.copies import copies
from experiments.harness import facts
from winolab.cli.command import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = (DOCS / "results.md").read_text()
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
SHOWN = re.compile(r"```console\n\$ (winolab .*?)\n(.*?)```", re.DOTALL)
BLOCKS = re.compile(r"^```{toctree}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMANDS = [found for path in TUTORIALS for found in SHOWN.findall(path.read_text())]


def test_there_are_nine() -> None:
    assert len(TUTORIALS) == 9
    index = (DOCS / "index.md").read_text()
    for path in TUTORIALS:
        assert f"(tutorials/{path.name})" in index
        assert f"\ntutorials/{path.stem}\n" in index
        assert ">>>" in path.read_text()


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=lambda text: str(text)[:40])
def test_commands_print_what_is_shown(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed == shown.splitlines()


def test_what_equal_bits_cost_is_what_results_say() -> None:
    """The geometric mean, the least and the most, as docs/results.md has them of rows."""
    (part,) = re.findall(r"Cost of batch_invariant=True.*?\n\n(\|.*?)\n\n", RESULTS, re.DOTALL)
    *layers, last = part.splitlines()[2:]
    (mean,) = re.findall(r"\| ([\d.]+) \(8 layers\) \|$", last)
    each = [found for line in layers for found in re.findall(r"\| ([\d.]+) \(", line)]
    least, most = min(each, key=float), max(each, key=float)
    text = " ".join((DOCS / "tutorials" / "put_it_into_your_network.md").read_text().split())
    said = f"{mean} times as long in geometric mean of eight cases on an H200, from {least} times"
    assert said in text
    assert f"to {most} for 32 small ones" in text
    half = max((re.findall(r"\| ([\d.]+) \(", line)[1] for line in layers), key=float)
    assert f"at most {half} in FP16" in text


def test_the_first_page_has_every_paper() -> None:
    """It lists what the site copies, and names none but that of its picture."""
    index = (DOCS / "index.md").read_text()
    (listed,) = (block for block in BLOCKS.findall(index) if "\n_generated/papers/*\n" in block)
    assert ":hidden:" not in listed
    copied = {path.relative_to(DOCS).as_posix() for path in copies(DOCS.parent)}
    for paper in facts.papers():
        assert f"_generated/papers/{paper}.ipynb" in copied
        named = [line for line in index.splitlines() if paper in line]
        assert all(line.startswith("[its notebook](") for line in named)


def test_every_public_name_is_in_the_reference() -> None:
    text = (DOCS / "api.md").read_text()
    named = re.findall(r"^\.\. auto(?:function|class):: ([\w.]+)", text, re.MULTILINE)
    listed = [name for name in named if "." not in name]  # others are what these return
    public = [*winolab.__all__, *winolab.jax.__all__, *winolab.torch.__all__]
    assert sorted(listed) == sorted(set(public) - {"__version__"})
    assert "`winolab.__version__`" in text
