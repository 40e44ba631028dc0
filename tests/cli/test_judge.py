"""``winolab judge``: its verdict, exit code, report, rows, and its errors in one line."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import winolab
from winolab.cli import judge as command
from winolab.cli.command import app
from winolab.gpu.machine import NotInstalled
from winolab.judge import judgement
from winolab.judge.claim import Claim
from winolab.judge.judgement import Judgement, cases, judge
from winolab.judge.loading import load

KERNELS = str(Path(__file__).parents[1] / "judge" / "kernels.py")
TIME = {"row": "time", "layer": "1x8x8x4:4x3x3", "method": "torch", "cold_us": [3.0, 4.0, 5.0],
        "warm_us": [1.0, 2.0, 3.0], "tflops": 0.5, "ceiling_tflops": 2.0, "share": 0.25,
        "workspace": None}  # fmt: skip


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Judge some cases in this process; what the command asked for."""
    asked: list[Any] = []

    def judged(
        kernel: str, claim: Claim, loaded: dict, how: dict, *, layers: Any, limit: float, told: Any
    ) -> tuple[Judgement, list[str]]:
        asked.append((claim, loaded, how, layers, limit))
        found = judge(load(kernel, **loaded), claim, told=lambda n, *_: told(n), **how)
        found.times += [TIME] * len(layers)
        return found, ["odd: both ends are padded alike"] if layers else []

    monkeypatch.setattr(judgement, "cases", lambda *of: islice(cases(*of), 0, None, 4))
    monkeypatch.setattr(judgement, "SHRINKING", 4)
    monkeypatch.setattr(command, "judge_apart", judged)
    return asked


def run(*words: Any):
    return CliRunner().invoke(app, ["judge", *map(str, words)])


def test_the_verdict_the_rows_and_the_report_of_a_right_kernel(
    here: list[Any], tmp_path: Path
) -> None:
    report, rows = tmp_path / "judged.html", tmp_path / "rows.jsonl"
    asked = [f"{KERNELS}:right", "--count", "4", "--seed", "x", "--skip", "leak,threads"]
    asked += ["--layers", "1x8x8x4:4x3x3", "--limit", "9", "--out", rows, "--report", report]
    found = run(*asked)
    assert found.exit_code == 0, found.output
    ((claim, loaded, how, layers, limit),) = here
    assert (claim, loaded["direction"], limit) == (Claim(), "forward", 9)
    skip = frozenset({"leak", "threads"})
    assert how == {"count": 4, "seed": "x", "skip": skip}
    assert [problem.filter for _, problem in layers] == [(3, 3)]
    first, *others = found.stdout.splitlines()
    assert first.startswith(f"accepted: {KERNELS}:right as direct in fp32, forward: ")
    assert others == ["1x8x8x4:4x3x3 torch: 0.5 TFLOPS, 25% of 2.0; cold 4.0 us, warm 2.0 us"]
    assert "winolab: odd: both ends are padded alike" in found.stderr
    *trials, time = map(json.loads, rows.read_text().splitlines())
    assert time["row"] == "time"
    assert time["seed"] == "x"
    assert {row["outcome"] for row in trials} == {"accepted"}
    assert all(row["commit"] and row["relative_rms"] <= row["most_rms"]
               for row in trials if "most_rms" in row)  # fmt: skip
    page = report.read_text()
    assert page.startswith("<!doctype html>")
    assert f"<title>{KERNELS}:right: accepted</title>" in page
    assert page.count("<tr class=accepted>") == len(trials)
    for said in ("<h2>Times</h2>", "<h2>Trials</h2>", "<td>0.25", "<th>share", "seed x"):
        assert said in page
    assert "<h2>Faults</h2>" not in page


def test_the_verdict_of_a_wrong_kernel(here: list[Any], tmp_path: Path) -> None:
    report = tmp_path / "judged.html"
    found = run(f"{KERNELS}:tf32", "--json", "--count", "0", "--report", report)
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert not told["accepted"]
    assert "is what TF32 products have" in told["faults"][0]
    assert told["verdict"].startswith("refused: ")
    assert "it has no argument stride" in told["left"]
    assert {row["outcome"] for row in told["rows"]} >= {"refused", "left"}
    page = report.read_text()
    for said in ("<h2>Faults</h2>", "TF32 products", "<h2>Not judged</h2>", "trials: it has no"):
        assert said in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.py:conv"], "there is no file none.py"),
        (["numpy"], "'numpy' names no function; expected FILE.py:FUNCTION"),
        ([":conv"], "':conv' names no file; expected FILE.py:FUNCTION"),
        (["no.such:conv"], "'no.such' is no file .py and no module: No module named 'no'"),
        ([f"{KERNELS}:STATE"], f"{KERNELS}:STATE is a dict; expected a function or a module"),
        ([f"{KERNELS}:none"], f"{KERNELS} has no 'none'; expected the name of a function in it"),
        (
            [f"{KERNELS}:right", "--serves", "filter=x"],
            "serves 'filter=x'; expected filter, stride",
        ),
        ([f"{KERNELS}:right", "--arrays", "jax"], "arrays 'jax'; expected numpy, torch or cupy"),
        ([f"{KERNELS}:right", "--skip", "rain"], "check 'rain'; expected values, nan"),
        ([f"{KERNELS}:right", "--algorithm", "nonsense:1"], "unknown algorithm 'nonsense:1'"),
        ([f"{KERNELS}:right", "--algorithm", "F(4x4)"], "unknown algorithm 'F(4x4)'"),
        ([f"{KERNELS}:right", "--precision", "fp8"], "fp8"),
        ([f"{KERNELS}:right", "--direction", "up"], "direction"),
        ([f"{KERNELS}:right", "--layout", "x"], "layout 'x'; expected channels_last, channels_"),
        ([f"{KERNELS}:right", "--device", "tpu"], "device 'tpu'; expected cpu, cuda"),
        ([f"{KERNELS}:right", "--dims", "4"], "dims 4; expected 1, 2, 3"),
        ([f"{KERNELS}:right", "--limit", "0"], "limit 0; expected seconds, more than 0"),
        ([f"{KERNELS}:right", "--count", "-1"], "count -1; expected 0 or more"),
        (["torch.nn:Linear(3)"], "torch.nn has no 'Linear(3)'"),
    ],
)
def test_a_wrong_argument_is_one_line(here: list[Any], words: list[str], said: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, ValueError | TypeError)
    assert said in str(found.exception)
    assert "\n" not in str(found.exception)


def test_a_report_that_cannot_be_written_is_told_before_a_trial(
    here: list[Any], tmp_path: Path
) -> None:
    """It was told behind the last, and the judgement was lost."""
    found = run(f"{KERNELS}:right", "--report", tmp_path / "none" / "judged.html")
    assert isinstance(found.exception, FileNotFoundError)
    assert here == []


@pytest.mark.parametrize(
    "words", [[f"{KERNELS}:right", "--arrays", "torch"], ["winolab.torch:conv2d"]]
)
def test_a_missing_library_is_not_held_against_a_kernel(
    here: list[Any], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("winolab.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(winolab, "torch", raising=False)  # as another test has left it
    monkeypatch.setitem(sys.modules, "torch", None)
    found = run(*words)
    assert isinstance(found.exception, NotInstalled)
    assert str(found.exception).startswith("torch is not installed: pip install '.[torch]'")


def test_modules_that_are_no_convolution_are_one_line(here: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "modules.py"
    file.write_text(
        "from torch.nn import Conv2d, ConvTranspose2d, Linear\n"
        "bias = Conv2d(2, 3, 3)\nlinear = Linear(3, 4)\nback = ConvTranspose2d(2, 3, 3)\n"
        "same = Conv2d(2, 3, 4, padding='same', bias=False)\n"
    )
    for name, said in {
        "bias": "the module adds a bias; expected one with bias=False",
        "linear": "the module Linear has no stride, padding, dilation, groups; expected a conv",
        "back": "the module ConvTranspose2d is a transposed convolution; expected a convolution",
        "same": 'the module pads "same" unevenly',
    }.items():
        assert said in str(run(f"{file}:{name}").exception)
    file.write_text(
        "class JITFunction:\n    __module__ = 'triton.runtime.jit'\n"
        "    def __call__(self): pass\ngemm = JITFunction()\n"
    )
    said = f"{file}:gemm is a Triton kernel; expected a Python function that launches it"
    assert str(run(f"{file}:gemm").exception) == said
    file.write_text("1 / 0\n")
    assert f"{file} cannot be imported: ZeroDivisionError" in str(run(f"{file}:conv").exception)
