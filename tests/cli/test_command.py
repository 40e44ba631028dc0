"""The command: what it prints, its JSON, its errors in one line with exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from winolab.algorithm import SCALINGS
from winolab.cli import command as cli
from winolab.cli import sweep
from winolab.gpu import driver
from winolab.gpu.machine import MachineError
from winolab.ref.algebra.transforms import transforms

SMALL = ["--input", "1x6x8x4", "--filter", "2x3x3", "--workers", "1"]


@dataclass
class Result:
    code: int
    out: str
    err: str


Winolab = Callable[..., Result]


@pytest.fixture
def winolab(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Winolab:
    """Call the command in this process, as the installed script does."""

    def call(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["winolab", *map(str, arguments)])
        monkeypatch.setattr(sys.modules["__main__"], "__package__", None)  # else it is pytest's
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capfd.readouterr()
        return Result(int(stop.value.code or 0), str(printed.out), str(printed.err))

    return call


def test_alone_it_says_what_there_is(winolab: Winolab) -> None:
    result = winolab()
    assert result.code == 0
    for command in ("transforms", "points", "accuracy", "reproduce", "doctor"):
        assert command in result.out
        assert winolab(command, "--help").code == 0
    assert winolab("--version").out == f"winolab {version('winolab')}\n"


@pytest.mark.parametrize("module", cli.MODULES)
def test_a_command_that_is_named_is_imported_alone(module: str) -> None:
    made = typer.main.get_command(cli.application((module,)))
    assert tuple(vars(made)["commands"]) == cli.MODULES[module]
    for command in cli.MODULES[module]:
        assert cli.asked([command, "--help"]) == cli.asked(["--unknown", command]) == (module,)


def test_all_are_imported_where_none_is_named() -> None:
    for arguments in ([], ["--help"], ["transform"]):
        assert cli.asked(arguments) == tuple(cli.MODULES)
    assert cli.asked(["--version"]) == ()
    names = [name for has in cli.MODULES.values() for name in has]
    assert {*vars(typer.main.get_command(cli.app))["commands"]} == {*names}
    with pytest.raises(AttributeError, match="no attribute 'apps'"):
        _ = cli.apps


def test_matrices_need_no_kernels() -> None:
    """A process that prints transforms starts without the planner and its families."""
    code = (
        "import sys, winolab.cli.command as c; sys.argv[1:] = ['transforms', '2', '3']\n"
        "try: c.main()\nexcept SystemExit as stop: assert not stop.code\n"
        "print([name for name in sys.modules if name.startswith('winolab.gpu.families')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_transforms_in_every_format(winolab: Winolab) -> None:
    exact = transforms(6, 3, "paper")
    read = json.loads(winolab("transforms", "6", "3", "--points", "paper", "--json").out)
    assert read == json.loads(
        winolab("transforms", "6", "3", "--points", "paper", "--format", "json").out
    )
    assert tuple(tuple(map(Fraction, row)) for row in read["G"]) == exact.G
    assert read["G"][1][0] == "-2/9"
    assert "F(6,3)" in winolab("transforms", "6", "3").out
    assert "\\begin{pmatrix}" in winolab("transforms", "6", "3", "--format", "latex").out
    assert "__device__" in winolab("transforms", "6", "3", "--format", "cuda").out
    assert "np.array" in winolab("transforms", "6", "3", "--format", "numpy").out


def test_points_and_scaling_are_passed_on(winolab: Winolab) -> None:
    listed = ("--points", "0,1,-1,1/2,-1/2,inf", "--scaling", "l1", "--json")
    read = json.loads(winolab("transforms", "4", "3", *listed).out)
    exact = transforms(4, 3, "0,1,-1,1/2,-1/2,inf", "l1")
    assert read["points"] == ["0", "1", "-1", "1/2", "-1/2", "inf"]
    assert tuple(tuple(map(Fraction, row)) for row in read["BT"]) == exact.BT


def test_help_names_every_scaling_that_is_taken(winolab: Winolab) -> None:
    shown = " ".join(winolab("transforms", "--help").out.split())
    for name in ("none", *SCALINGS):
        assert name in shown
        assert winolab("transforms", "2", "3", "--scaling", name).code == 0


def test_points_shows_the_leaders_and_the_named_sets(winolab: Winolab) -> None:
    result = winolab("points", "6", "--r", "3", "--budget", "0.5", "--json")
    read = json.loads(result.out)
    assert (read["alpha"], read["r"]) == (6, 3)
    scores = [row["score"] for row in read["leaders"]]
    assert scores == sorted(scores)
    named = {row["name"]: row for row in read["leaders"] if row["name"]}
    paper = transforms(4, 3, "paper")
    assert any("paper" in name for name in named)
    assert any(row["points"] == [str(p) for p in paper.points] for row in named.values())
    shown = winolab("points", "6", "--r", "3", "--budget", "0.5").out
    assert "paper" in shown
    assert "rank" in shown


def test_points_that_overflow_are_texts_in_json(winolab: Winolab) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    result = winolab("points", "32", "--budget", "0", "--json")
    scores = [row["score"] for row in json.loads(result.out, parse_constant=refuse)["leaders"]]
    assert "nan" in scores
    numbers = [score for score in scores if score != "nan"]
    assert scores == sorted(numbers) + ["nan"] * (len(scores) - len(numbers))


def test_accuracy_sweeps_lists_and_resumes(winolab: Winolab, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    lists = ["--algorithm", "direct,gamma:4:2:3@0,1,-1,inf", "--data", "u12,normal", *SMALL]
    first = winolab("accuracy", *lists, "--seed", "0", "--out", out, "--json")
    assert first.code == 0, first.err
    rows = json.loads(first.out)
    assert [row["algorithm"] for row in rows] == ["direct"] * 2 + ["gamma:4:2:3@0,1,-1,inf"] * 2
    again = winolab("accuracy", *lists, "--seed", "0,1", "--out", out, "--json")
    assert [row for row in json.loads(again.out) if row["seed"] == 0] == rows
    assert len(out.read_text().splitlines()) == 8


def test_accuracy_takes_mixed_precisions_in_a_list(winolab: Winolab) -> None:
    mixed = "fp32,fp32,storage=fp16,tf32"
    result = winolab("accuracy", "--algorithm", "direct", "--precision", mixed, *SMALL, "--json")
    found = [row["precision"] for row in json.loads(result.out)]
    assert found == ["fp32", "fp32,storage=fp16", "tf32"]


def test_accuracy_shows_what_differs_as_columns(winolab: Winolab) -> None:
    result = winolab("accuracy", "--algorithm", "direct", "--data", "u12,normal", *SMALL)
    shared, _, table = result.out.partition("\n\n")
    assert "algorithm direct" in shared
    assert "data" not in shared
    assert table.splitlines()[1].split()[:2] == ["data", "MARE"]
    assert len([line for line in table.splitlines() if line.startswith(("u12", "normal"))]) == 2
    assert result.err == ""  # no progress bar where there is no terminal


def test_a_damaged_row_is_reported_with_its_line(winolab: Winolab, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    call = ("accuracy", "--algorithm", "direct", *SMALL, "--out", str(out), "--json")
    winolab(*call)
    out.write_text(out.read_text() + '{"algorithm": "dir')
    result = winolab(*call)
    assert result.code == 0
    assert result.err.startswith(f"winolab: {out}:2: ")


def test_an_interrupt_says_how_to_go_on(
    winolab: Winolab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep.Case, "measure", interrupted)
    out = tmp_path / "rows.jsonl"
    result = winolab("accuracy", "--algorithm", "direct", *SMALL, "--out", out)
    assert result.code == 130
    assert "the same command goes on" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transform"], "No such command 'transform'; did you mean 'transforms'?\n"),
        (["transforms", "2"], "takes N and R, such as 6 3"),
        (["transforms", "two", "3"], "'N'"),
        (["points"], "Missing argument 'ALPHA'; winolab points --help lists what is expected"),
        (["plan", "sideways"], "plan --help lists"),
        (["transforms", "2", "3", "--point", "best"], "--points"),
        (["transforms", "2", "3", "--format", "tex"], "text, json, latex, cuda, numpy"),
        (["transforms", "2", "3", "--format", "tex", "--json"], "unknown format 'tex'"),
        (["transforms", "2", "3", "--points", "0,1,1,inf"], "repeated"),
        (["transforms", "2", "3", "--points", "0,1,inf"], "expected alpha = n + r - 1 = 4"),
        (["transforms", "2", "3", "--points", "0,1,0.1y,inf"], "not a rational number"),
        (["transforms", "2", "3", "--points", "bset"], "unknown points 'bset'"),
        (
            ["transforms", "2", "3", "--scaling", "l2"],
            "'l2'; expected one of none, power_of_two, filter, l1",
        ),
        (["transforms", "30", "4"], "at most 32"),
        (["transforms", "0", "3"], "at least one output"),
        (["accuracy", *SMALL], "--algorithm"),
        (["transforms", "2", "3", "--json", "--format", "latex"], "--format latex; give one of"),
        (["accuracy", "--algorithm", "gama:8:6:3", *SMALL], "did you mean 'gamma:8:6:3"),
        (["accuracy", "--algorithm", "gamma:8:4:5", *SMALL], "serves 5 taps or more"),
        (["accuracy", "--algorithm", "direct", *SMALL, "--seed", "one"], "seed 'one'"),
        (["accuracy", "--algorithm", "direct", *SMALL, "--data", "u12,"], "unknown data ''"),
        (["accuracy", "--algorithm", "direct", *SMALL, "--workers", "0"], "workers"),
        (["accuracy", "--algorithm", "direct", *SMALL, "--filter", "0x3x3"], "nothing to compute"),
        (["accuracy", "--algorithm", "direct", *SMALL, "--out", "/"], "/: Is a directory"),
        (
            ["accuracy", "--algorithm", "direct", *SMALL, "--out", "/no/such/folder/rows"],
            "/no/such/folder/rows: No such file",
        ),
    ],
)
def test_errors_are_one_line_and_exit_code_2(
    winolab: Winolab, arguments: list[str], message: str
) -> None:
    result = winolab(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("winolab: ")
    assert result.err.count("\n") == 1
    assert message in result.err


def test_what_the_machine_lacks_is_one_line_and_a_fault_of_ours_is_not(
    winolab: Winolab, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: RuntimeError = MachineError("CUDA arrays need CuPy: pip install it")

    def missing() -> None:
        raise found

    monkeypatch.setattr(driver, "cupy", missing)
    result = winolab("bench")
    assert (result.code, result.out) == (2, "")
    assert result.err == "winolab: CUDA arrays need CuPy: pip install it\n"
    found = RuntimeError("a fault")
    monkeypatch.setattr(sys, "argv", ["winolab", "bench"])
    with pytest.raises(RuntimeError, match="a fault"):
        cli.main()


def test_doctor_reports(winolab: Winolab) -> None:
    report = json.loads(winolab("doctor", "--json").out)
    assert report["core"]["numpy"]
    assert {"extras", "gpus", "compilers", "cuda", "checkout", "python", "commit"} <= report.keys()
    shown = winolab("doctor").out
    assert report["core"]["numpy"] in shown
    assert "GPU" in shown
