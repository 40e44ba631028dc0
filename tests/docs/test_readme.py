"""What README promises exists: its commands run, its links hold, its words and numbers are few."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from typer.testing import CliRunner

import winolab
import winolab.torch
from experiments.harness import facts
from winolab.cli.command import app
from winolab.device import datasheet

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
SHELL = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
LINKS = re.findall(r"\]\(([^)\s]+)", TEXT)


def test_it_is_one_screen_and_a_table() -> None:
    assert len(TEXT.split()) <= 700
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    assert 0 < len(rows) - 2 <= 8  # a head and a rule


def test_it_names_the_five_papers() -> None:
    assert len(facts.papers()) == 5
    for paper in facts.papers():
        assert f"[{facts.named(paper)}]({facts.link(paper)})" in TEXT


@pytest.mark.parametrize("word", ["**α**", "**Γα(n, r)**", "**Ωα(n, r)**", "**Split\nproducts**"])
def test_it_says_what_its_words_mean(word: str) -> None:
    assert word in TEXT or word.replace("\n", " ") in TEXT


def test_its_links_hold() -> None:
    """Relative ones name what is there; once pyproject names a repository, no link is relative."""
    relative = [link for link in LINKS if "://" not in link]
    assert relative
    for link in relative:
        assert (ROOT / link.split("#")[0]).exists(), link
    assert "urls" not in PROJECT, "make README's links absolute, so that they hold on an index"
    assert "In the checkout: " in TEXT
    addresses = {facts.link(paper) for paper in facts.papers()}
    assert {link for link in LINKS if "://" in link} == addresses


@pytest.mark.parametrize("line", [line for line in SHELL if line.startswith("winolab ")])
def test_its_commands_run(line: str) -> None:
    done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert done.exit_code == 0, done.output


def test_it_installs_by_what_exists() -> None:
    made = [line.split()[1] for line in SHELL if line.startswith("make ")]
    makefile = (ROOT / "Makefile").read_text()
    assert any(line.startswith("pip wheel --no-deps -w dist .") for line in SHELL)
    for target in made:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    extras = set(re.findall(r"\.\[(\w+)\]", TEXT))
    assert extras >= {"gpu", "gpu13", "torch", "notebooks"}
    assert extras <= PROJECT["optional-dependencies"].keys()
    low, high = re.search(r"Python (3\.\d+) to (3\.\d+)", TEXT).groups()  # pyright: ignore
    above = f"3.{int(high.split('.')[1]) + 1}"
    assert PROJECT["requires-python"] == f">={low},<{above}"
    assert "pip install winolab" not in TEXT


def test_its_example_for_a_gpu_runs_on_a_cpu_too() -> None:
    """One code on a laptop and a GPU, where tests/gpu runs it."""
    (example,) = (block for kind, block in BLOCKS if "cuda" in block and kind == "python")
    names: dict[str, Any] = {}
    exec(example, names)
    x, w, y = (names[name].detach() for name in "xwy")
    exact = names["torch"].nn.functional.conv2d(x[:1].double(), w.double(), padding=1)
    assert float((y[:1].double() - exact).norm()) <= 1e-5 * float(exact.norm())
    assert names["w"].grad.shape == w.shape


def test_gpus_serve_what_it_says_they_do() -> None:
    assert "any stride, dilation and groups." in " ".join(TEXT.split())
    filters = {16: (16, 3, 3, 1), 4: (16, 3, 3, 4), 1: (16, 3, 3, 16)}
    for how, device, groups in product(({"stride": 2}, {"dilation": 2}), ("h100", "a100"), filters):
        planned = partial(winolab.plan, (2, 8, 8, 16), filters[groups], device=device, **how)
        for precision in ("fp32", "fp16", "bf16"):
            for direction in ("forward", "backward_data", "backward_filter"):
                planned(precision=precision, direction=direction, groups=groups)


def test_gpus_from_the_compute_capability_that_it_names_are_served() -> None:
    assert "compute capability 8.0 and later" in TEXT
    device = datasheet("a100")
    assert device.compute_capability == (8, 0)
    winolab.plan((2, 8, 8, 16), (16, 3, 3, 16), device=device)
    older = replace(device, compute_capability=(7, 5))
    with pytest.raises(ValueError, match=r"compute capability 7\.5"):
        winolab.plan((2, 8, 8, 16), (16, 3, 3, 16), device=older)


def test_a_network_is_converted() -> None:
    assert "`winolab.torch.convert(model)` puts" in TEXT
    (layer,) = winolab.torch.convert(nn.Conv2d(3, 4, 3)).layers
    assert layer.converted


def test_the_package_has_a_version_types_and_a_module_to_run() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", winolab.__version__)
    assert (Path(winolab.__file__).parent / "py.typed").is_file()
    done = subprocess.run(
        [sys.executable, "-m", "winolab", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, f"winolab {winolab.__version__}\n"), done.stderr


def test_the_citation_names_the_papers_as_their_facts_do() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    for paper in facts.papers():
        stated = facts.facts(paper)["paper"]
        assert stated["title"] in text
        assert stated.get("doi", f"arXiv:{stated.get('arxiv')}") in text
    assert f"license: {PROJECT['license']}\n" in text
    assert "Apache License" in (ROOT / "LICENSE").read_text()
