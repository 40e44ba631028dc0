"""``winolab warmup``: counts and compiles kernels of layers, without a GPU."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from winolab.bench import picks
from winolab.cli.command import app
from winolab.device import H100
from winolab.gpu import driver, warm
from winolab.gpu.planner.planner import plan
from winolab.gpu.runtime import cache, nvrtc

LAYER = ["warmup", "--layers", "32x28x28x64:64x3x3,32x28x28x64:64x3x3", "--device", "h100"]


@pytest.fixture
def compiled(tmp_path, monkeypatch) -> list[str]:
    """What NVRTC was asked for, whose place this takes."""
    found: list[str] = []
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    monkeypatch.setattr(
        nvrtc,
        "compile_cubin",
        lambda source, arch: found.append(source) or nvrtc.Compiled(source.encode(), {}),
    )
    return found


def test_layers_are_counted_and_compiled_once(compiled) -> None:
    ways = ["--direction", "forward,backward_filter", "--precision", "fp16"]
    run = CliRunner().invoke(app, [*LAYER, *ways, "--count", "--json"])
    said = json.loads(run.stdout)
    assert said["calls"] == 4
    assert said["device"] == "NVIDIA H100 80GB HBM3"
    assert not compiled
    done = CliRunner().invoke(app, [*LAYER, *ways, "--quiet"])
    assert done.exit_code == 0
    assert len(compiled) == len(set(compiled)) == said["kernels"]
    assert done.stdout.startswith(f"{len(compiled)} kernels: {len(compiled)} compiled in ")
    assert len(list(cache.cache_folder().iterdir())) == len(compiled)
    again = json.loads(CliRunner().invoke(app, [*LAYER, *ways, "--quiet", "--json"]).stdout)
    assert [unit["seconds"] for unit in again["units"]] == [None] * len(compiled)


def test_plans_are_timed_where_that_is_asked(compiled, monkeypatch) -> None:
    asked = []

    def prefer(requests, workers, done):
        asked.extend(requests)
        return tuple(
            warm.Timed(request, apart, pick, ((pick, 1e-5),))
            for request, apart in requests
            for pick in [plan(request, apart)]
        )

    monkeypatch.setattr(picks, "prefer", prefer)
    monkeypatch.setattr(driver, "device", lambda index: H100)
    ways = ["--direction", "forward,backward_filter", "--quiet", "--measure"]
    done = CliRunner().invoke(app, [*LAYER[:3], *ways])
    assert done.exit_code == 0
    assert done.stdout.endswith("0 calls timed, which keep the planner's picks\n")
    assert [(r.direction, apart) for r, apart in asked] == [
        ("forward", False), ("backward_filter", False)
    ]  # fmt: skip
    assert compiled


@pytest.mark.parametrize("other", [["--device", "h100"], ["--count"]])
def test_what_is_measured_runs_on_the_gpu_at_hand(other) -> None:
    run = CliRunner().invoke(app, [*LAYER[:3], "--measure", *other])
    assert run.exit_code == 2
    said = " ".join(run.output.replace("│", "").split())
    assert "--measure runs on the GPU that is there" in said


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--direction", "sideways"], "direction 'sideways'; expected forward"),
        (["--precision", "fp31"], "fp31"),
        (["--layers", "everything"], "everything"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_what_is_not_known_is_refused(option, said) -> None:
    run = CliRunner().invoke(app, [*LAYER, *option])
    assert isinstance(run.exception, ValueError)
    assert said in str(run.exception)
