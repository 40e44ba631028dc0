"""``winolab plan``: text, JSON, a picture, and errors."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from winolab.cli import app

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
    assert read["predicted_ms"] > 0


def test_a_stride_is_planned_by_its_phases() -> None:
    read = json.loads(call(*VGG16_2, "--stride", "2", "--json").stdout)
    assert len(read) == 4


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    assert call(*VGG16_2, "--segments", "6", "--picture", str(path)).exit_code == 0
    assert "<svg" in path.read_text()


def test_an_unknown_device_is_a_value_error() -> None:
    failed = call(*VGG16_2, "--device", "rtx9999")
    assert isinstance(failed.exception, ValueError)
    assert "known are" in str(failed.exception)


def kernels(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_kernels_plan_says_what_else_was_considered() -> None:
    for direction in ("forward", "backward-data"):
        text = kernels(direction, *VGG16_2, "--precision", "fp32_ffma")
        assert text.exit_code == 0
        assert f"{direction.replace('-', '_')} x(32, 224, 224, 64)" in text.stdout
        assert "fastest predicted of every kernel" in text.stdout
        assert "Γ1(1,1) fp32" in text.stdout


def test_older_gpus_have_plans_and_the_oldest_a_reason() -> None:
    for name in ("A100", "RTX 3090", "RTX 4090"):
        text = kernels("forward", *VGG16_2, "--device", name)
        assert text.exit_code == 0
        assert "Γ8(6,3) fp32" in text.stdout
        assert name in text.stdout
    failed = kernels("forward", *VGG16_2, "--device", "RTX 2080 Ti")
    assert "compute capability 7.5; the kernels need 8.0" in str(failed.exception)


def test_a_workspace_that_no_plan_has_is_an_error() -> None:
    failed = kernels("forward", *VGG16_2, "--workspace-limit", "10")
    assert isinstance(failed.exception, ValueError)
    assert "no plan stays within a workspace of 10 B" in str(failed.exception)
