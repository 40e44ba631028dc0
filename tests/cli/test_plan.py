"""``winolab plan``: text, JSON, a picture, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from winolab.cli.command import app
from winolab.gpu.planner.ranking import WORTH

VGG16_2 = ["--input", "32x224x224x64", "--filter", "64x3x3", "--padding", "1"]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", "backward-filter", *arguments])


def test_the_plan_as_text_and_as_json() -> None:
    text = call(*VGG16_2, "--device", "rtx4090")
    assert text.exit_code == 0
    assert "Ω8(3,6) and Ω4(3,2)" in text.stdout
    read = json.loads(call(*VGG16_2, "--device", "rtx4090", "--json").stdout)
    assert read["device"] == "NVIDIA GeForce RTX 4090"
    assert read["workspace_bytes"] == 4 * (read["segments"] - 1) * 64 * 3 * 3 * 64
    assert read["predicted_us"] > 0
    assert f"predicted  {read['predicted_us']:.1f} µs\n" in text.stdout
    assert " ms" not in text.stdout  # the paper's model and ours in one unit
    own = read["cuda"]
    assert own["direction"] == "backward_filter"
    assert f"{own['plan']['predicted_us']:.1f} µs" in text.stdout
    lines = [line for line in text.stdout.splitlines() if " µs  " in line]
    for line, found in zip(lines, own["kernels"], strict=True):
        assert line.split()[2] == found["kernel"]
        assert line.endswith(f", relative RMS error {found['relative_rms']:.1e} on normal data")
    error = f"error      relative RMS error {own['plan']['relative_rms']:.1e} on normal data"
    assert error in text.stdout.splitlines()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_what_launches_winrs_s_plan_is_said_beside_the_paper_s_model(precision: str) -> None:
    how = (*VGG16_2, "--precision", precision)
    run = json.loads(call(*how, "--json").stdout)["cuda_winrs"]
    line = f"launched   {run['predicted_us']:.1f} µs as algorithm winrs"
    assert line in call(*how).stdout
    named = json.loads(call(*how, "--algorithm", "winrs", "--json").stdout)["plan"]
    assert run["predicted_us"] == pytest.approx(named["predicted_us"], abs=0.01)


def test_winrss_plan_stands_where_the_cuda_kernels_have_none() -> None:
    old = (*VGG16_2, "--device", "RTX 2080 Ti")
    text = call(*old)
    assert text.exit_code == 0
    assert "CUDA kernels need 8.0" in text.stdout.splitlines()[-1]
    own = json.loads(call(*old, "--json").stdout)["cuda"]
    assert (own["plan"], own["kernels"]) == (None, [])
    assert "CUDA kernels need 8.0" in own["left_out"][0]
    assert json.loads(call(*VGG16_2, "--points", "paper", "--json").stdout)["cuda"] is None


@pytest.mark.parametrize("precision", ["fp32_split", "bf16"])
def test_precisions_that_winrs_does_not_have_are_planned_alone(precision: str) -> None:
    text = call(*VGG16_2, "--precision", precision)
    assert text.exit_code == 0
    assert text.stdout.startswith("backward_filter x(32, 224, 224, 64)")
    read = json.loads(call(*VGG16_2, "--precision", precision, "--json").stdout)
    assert read["plan"]["products"] == precision


def test_an_algorithm_fixes_the_cuda_kernels_plan() -> None:
    named = (*VGG16_2, "--precision", "fp16", "--algorithm")
    read = json.loads(call(*named, "omega:8:3:6@paper;segments=5", "--json").stdout)
    assert {(k["kernel"], k["points"]) for k in read["kernels"]} == {("Ω8(3,6)", "paper")}
    assert "segments   5," in call(*named, "omega:8:3:6;segments=5").stdout
    read = json.loads(call(*named, "winrs;segments=5", "--json").stdout)
    assert {k["kernel"] for k in read["kernels"]} == {"Ω8(3,6) and Ω4(3,2)"}  # the paper's pair


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--algorithm", "gamma:8:6:3"), "not gamma:8:6:3"),
        (("--algorithm", "omega:8:3:6;scaling=l1"), "scaling of their own (power_of_two)"),
        (("--algorithm", "winrs;scaling=l1"), "without options, not winrs;scaling=l1"),
        (("--algorithm", "winrs;device=rtx4090"), "name the algorithm without a device"),
        (("--algorithm", "omega:8:3:6", "--segments", "3"), "'omega:8:3:6@paper;segments=3'"),
        (("--precision", "bf16", "--all-kernels"), "has the precisions fp32, fp32_ffma, fp16"),
        (("--stride", "2", "--algorithm", "omega:8:3:6"), "need stride 1"),
        (("--precision", "fp31"), "expected one of fp32, fp32_ffma"),
    ],
)
def test_what_has_no_plan_says_why(arguments: tuple[str, ...], message: str) -> None:
    done = call(*VGG16_2, *arguments)
    assert done.exit_code
    assert message in str(done.exception)


def test_strides_and_dilation_are_planned_by_their_phases() -> None:
    for option, count in (("--stride=2", 4), ("--stride=2x1", 2), ("--dilation=2", 4)):
        read = json.loads(call(*VGG16_2, option, "--json").stdout)
        assert len(read) == count


def test_gradients_have_the_cuda_kernels_plan_too() -> None:
    """Behind WinRS's of every phase; alone where it has none of a phase, 2 wide in FP16."""
    asked = *VGG16_2, "--stride", "2", "--padding", "1", "--device", "h200"
    both = call(*asked).stdout
    assert both.index("WinRS's plan") < both.index("stride (2, 2)")
    alone = call(*asked, "--precision", "fp16")
    assert alone.exit_code == 0
    assert alone.stdout.startswith("backward_filter x(32, 224, 224, 64)")
    assert "predicted" in alone.stdout
    assert "WinRS" not in alone.stdout
    narrow = call("--input", "1x8x8x4", "--filter", "4x2x2", "--precision", "fp16")  # at stride 1
    assert narrow.stdout.startswith("backward_filter x(1, 8, 8, 4)")
    refused = call(*asked, "--precision", "fp16", "--segments", "2")
    assert "no fp16 kernel computes a filter 2 wide" in str(refused.exception)


@pytest.mark.parametrize("direction", ["forward", "backward-data", "backward-filter"])
def test_groups_are_planned_and_validated(direction: str) -> None:
    read = json.loads(kernels(direction, *VGG16_2, "--groups", "2", "--json").stdout)
    assert read.get("cuda", read)["w"] == [64, 3, 3, 32]
    refused = kernels(direction, *VGG16_2, "--groups", "3")
    message = "groups = 3; expected a divisor of the 64 channels of input 32x224x224x64"
    assert str(refused.exception) == message


@pytest.mark.parametrize("option", ["--stride", "--dilation"])
def test_what_no_kernel_computes_is_refused_in_one_line(option: str) -> None:
    for direction in ("forward", "backward-data", "backward-filter"):
        assert kernels(direction, *VGG16_2, option, "2", "--algorithm", "direct").exit_code == 0
    refused = kernels("backward-filter", *VGG16_2, option, "2", "--algorithm", "omega:8:3:6")
    assert isinstance(refused.exception, ValueError)
    assert "kernels that transform need stride 1 and dilation 1, not " in str(refused.exception)
    assert "\n" not in str(refused.exception)
    assert refused.stdout == ""


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    assert call(*VGG16_2, "--segments", "6", "--picture", str(path)).exit_code == 0
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    ("name", "reason"), [("missing/x.svg", "No such file"), ("x.foo", "Format 'foo' is not")]
)
def test_a_picture_that_cannot_be_drawn_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    path = tmp_path / name
    failed = call(*VGG16_2, "--picture", str(path))
    assert isinstance(failed.exception, ValueError)
    assert f"{path} was not drawn: " in str(failed.exception)
    assert reason in str(failed.exception)
    assert "\n" not in str(failed.exception)
    assert capfd.readouterr().err == ""  # of the process that draws


@pytest.mark.parametrize("name", ["", "plan", "/dev/null"])
def test_a_picture_of_no_format_is_refused(name: str) -> None:
    refused = call(*VGG16_2, "--picture", name)
    assert str(refused.exception) == (
        f"picture {name or '.'!r}; expected a file such as plan.svg, .pdf or .png"
    )


def test_alone_it_says_what_there_is() -> None:
    alone = kernels()
    assert (alone.exit_code, alone.stderr) == (0, "")
    assert "What a planner decides" in alone.stdout
    assert "backward-filter" in alone.stdout


def test_an_unknown_device_is_a_value_error() -> None:
    failed = call(*VGG16_2, "--device", "rtx9999")
    assert isinstance(failed.exception, ValueError)
    assert "expected one of" in str(failed.exception)


def kernels(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_kernels_plan_says_what_else_was_considered() -> None:
    for direction in ("forward", "backward-data"):
        text = kernels(direction, *VGG16_2, "--precision", "fp32_ffma")
        assert text.exit_code == 0
        assert f"{direction.replace('-', '_')} x(32, 224, 224, 64)" in text.stdout
        assert "the fastest predicted of every other kernel" in text.stdout
        assert "Γ1(1,1) fp32" in text.stdout


@pytest.mark.parametrize("direction", ["forward", "backward-data"])
def test_the_kernels_plan_as_json(direction: str) -> None:
    text = kernels(direction, *VGG16_2).stdout
    read = json.loads(kernels(direction, *VGG16_2, "--json").stdout)
    assert read["direction"] == direction.replace("-", "_")
    assert (read["x"], read["w"]) == ([32, 224, 224, 64], [64, 3, 3, 64])
    assert read["plan"] == read["kernels"][0]
    lines = [line for line in text.splitlines() if " µs  " in line]
    for line, found in zip(lines, read["kernels"], strict=True):
        microseconds, *words = line.split()
        assert float(microseconds) == pytest.approx(found["predicted_us"], abs=0.051)
        assert words[:3] == ["µs", found["kernel"], f"{found['products']},"]
        assert f" {found['workspace_bytes']} B workspace" in line
        assert f"RMS error {found['relative_rms']:.1e} on" in line
    reasons = [line for line in text.splitlines() if line.startswith("left out: ")]
    assert reasons == [f"left out: {reason}" for reason in read["left_out"]]


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (("128x96x96x64", "64x3x3"), "it errs no more than sums in FP32; what is faster errs 1.13"),
        (("128x36x36x192", "192x2x2"), "the fewest states within 1% of the fastest"),
        (("64x64x64x96", "96x6x6"), "what is faster errs 1.17 times as much as sums in FP32, more"),
        (("128x48x48x128", "128x3x3"), ""),
    ],
)
def test_what_is_slower_is_taken_for_a_reason(layer: tuple[str, str], why: str) -> None:
    arguments = ("forward", "--input", layer[0], "--filter", layer[1], "--padding", "1")
    read = json.loads(kernels(*arguments, "--json").stdout)
    assert read["why"].startswith(why)
    assert bool(read["why"]) == bool(why)
    fastest = min(found["predicted_us"] for found in read["kernels"])
    assert (read["plan"]["predicted_us"] > fastest) == bool(why)
    told = kernels(*arguments).stdout
    assert f"taken is the first: {read['why']}" in told if why else "taken" not in told


def test_a_gradient_of_less_workspace_is_taken_for_a_reason() -> None:
    arguments = ("--input", "128x48x48x128", "--filter", "128x3x3", "--padding", "1")
    read = json.loads(kernels("backward-filter", *arguments, "--json").stdout)["cuda"]
    fastest = min(read["kernels"], key=lambda found: found["predicted_us"])
    assert read["plan"] == read["kernels"][0] != fastest
    assert read["plan"]["workspace_bytes"] < fastest["workspace_bytes"]
    assert read["plan"]["predicted_us"] * WORTH < fastest["predicted_us"]
    larger = fastest["workspace_bytes"] >> 20
    assert read["why"] == f"what is faster by less than 9% takes {larger} MiB"


def test_points_are_checked_before_a_plan_is_printed() -> None:
    failed = kernels("forward", *VGG16_2, "--algorithm", "gamma:8:6:3@0,1")
    assert failed.stdout == ""
    assert "2 points given; expected alpha" in str(failed.exception)


def test_older_gpus_have_plans_and_the_oldest_a_reason() -> None:
    for name in ("A100", "RTX 3090", "RTX 4090"):
        text = kernels("forward", *VGG16_2, "--device", name)
        assert text.exit_code == 0
        assert "Γ8(6,3) fp32" in text.stdout
        assert name in text.stdout
    failed = kernels("forward", *VGG16_2, "--device", "RTX 2080 Ti")
    assert "compute capability 7.5; the CUDA kernels need 8.0" in str(failed.exception)


@pytest.mark.parametrize("direction", ["forward", "backward-data", "backward-filter"])
@pytest.mark.parametrize(
    "sizes", [("0x12x12x3", "4x3x3"), ("1x0x12x3", "4x3x3"), ("1x12x12x0", "4x3x3"),
              ("1x12x12x3", "0x3x3")]
)  # fmt: skip
def test_nothing_to_compute_has_no_plan(direction: str, sizes: tuple[str, str]) -> None:
    failed = kernels(direction, "--input", sizes[0], "--filter", sizes[1])
    assert isinstance(failed.exception, ValueError)
    assert "nothing to compute" in str(failed.exception)
    assert failed.stdout == ""


def test_a_workspace_that_no_plan_has_is_an_error() -> None:
    named = (*VGG16_2, "--precision", "fp32_split")  # FFMA units have a kernel that needs none
    failed = kernels("forward", *named, "--workspace-limit", "10")
    assert isinstance(failed.exception, ValueError)
    told = str(failed.exception)
    assert "no plan stays within a workspace of 10 B" in told
    assert told.endswith(": raise the limit")
    least = told.partition("the smallest needs ")[2].partition(" B, ")[0]
    enough = kernels("forward", *named, "--workspace-limit", least, "--json")
    assert json.loads(enough.stdout)["plan"]["workspace_bytes"] == int(least)


def test_precisions_may_be_dtypes() -> None:
    shapes = ["--input", "1x12x12x16", "--filter", "16x3x3", "--padding", "1"]
    for command in ("forward", "backward-data", "backward-filter"):
        outputs = [
            CliRunner().invoke(app, ["plan", command, *shapes, "--precision", name])
            for name in ("fp16", "float16", "half")
        ]
        assert outputs[0].exit_code == 0
        assert len({found.output for found in outputs}) == 1
