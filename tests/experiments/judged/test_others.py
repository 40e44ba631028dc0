"""Kernels of others: signatures are the wrappers' own, what is missing is said in a line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.judged import on_gpu, times
from experiments.judged.on_gpu import OTHERS, Kernel
from experiments.judged.others import sources
from winolab.cli import bench
from winolab.judge import native
from winolab.judge.candidate import Declined


@pytest.mark.parametrize("name", sources.SOURCES)
def test_a_signature_has_the_wrapper_s_arguments(name: str, tmp_path: Path) -> None:
    source = sources.SOURCES[name]
    said = native._signature(tmp_path / "others.so", source.signature, "forward")
    given = re.search(
        r'(?s)extern "C" int conv\((.*?)\)', (sources.HERE / source.wrapper).read_text()
    )
    assert given
    names = [part.split()[-1].lstrip("*") for part in given[1].split(",")]
    assert [each.rpartition(" ")[2] for each in said["arguments"]] == names
    assert said["device"] == "cuda"
    assert source.repository in sources.COMMITS
    assert native.Serves(said["serves"])


def test_every_source_is_among_the_kernels() -> None:
    built = {kernel.name for kernel in OTHERS if kernel.where.startswith("others:")}
    assert built == sources.SOURCES.keys()
    assert not built & {kernel.name for kernel in on_gpu.KERNELS}
    assert {kernel.expected for kernel in OTHERS} == {"either"}


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(sources.SourceError, match=r"there is no .*conv_op_optimization; bring it"):
        sources.built("implgemm_cute", tmp_path, tmp_path)
    (tmp_path / "conv_op_optimization").mkdir()
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(sources.SourceError, match="there is no nvcc"):
        sources.built("implgemm_cute", tmp_path, tmp_path)


def test_nvcc_is_told_where_the_source_is(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "conv_op_optimization").mkdir()
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(returncode=len(commands) - 1, stderr="no such\nfile")

    monkeypatch.setattr(sources.shutil, "which", lambda name: name)
    monkeypatch.setattr(sources.subprocess, "run", run)
    monkeypatch.setattr(
        sources.driver, "device", lambda index: SimpleNamespace(compute_capability=(9, 0))
    )
    path = sources.built("implgemm_tiled", tmp_path, tmp_path)
    assert path.with_suffix(".toml").read_text() == sources.SOURCES["implgemm_tiled"].signature
    assert {"-arch=sm_90a", f"-I{tmp_path}/conv_op_optimization/cuda/implicitgemm"} <= {
        *commands[0]
    }
    with pytest.raises(sources.SourceError, match="nvcc: no such file"):
        sources.built("implgemm_tiled", tmp_path, tmp_path)


def test_times_replace_those_of_one_layer(tmp_path: Path, monkeypatch, capsys) -> None:
    """Verdicts and other layers' times stay; what is declined, or begun too late, has no row."""
    output = tmp_path / "rows.jsonl"
    old = {"name": "right", "row": "time", "layer": "old"}
    kept = [{"name": "right", "expected": "accepted"}, old]
    output.write_text("".join(json.dumps(row) + "\n" for row in kept))
    kernels = [Kernel(name, f"x.py:{name}", "cupy", True) for name in ("right", "choosy")]
    half = Kernel("half", "x.py:half", "cupy", True, precision="fp16")
    monkeypatch.setattr(times, "KERNELS", [*kernels, half])
    monkeypatch.setattr(times.bench, "context", lambda: {"device": "a GPU"})
    monkeypatch.setattr(times, "loaded", lambda kernel: SimpleNamespace(name=kernel.where))

    def on_gpu(candidates: list, claim: Any, problem: Any, layer: str) -> list[dict]:
        if len(candidates) > 1:
            raise Declined("both ends")
        speed = {"tflops": 2.0, "share": 0.1, "cold_us": [1, 2, 3], "warm_us": [1, 1, 2]}
        row = {"row": "time", "layer": layer}
        judged = {**row, **speed, "method": "judged", "kernel": "x.py:right", "held_bytes": 0}
        return [judged, {**row, "method": "refused"}]

    monkeypatch.setattr(times.speed, "on_gpu", on_gpu)
    for _ in range(2):
        times.main("right", "1x8x8x4:4x3x3", 60, output)
    found = [json.loads(row) for row in output.read_text().splitlines()]
    (layer,) = (str(each) for _, each in bench.named("1x8x8x4:4x3x3"))
    assert found[:2] == kept
    rows = [(row["layer"], row["name"], row["device"]) for row in found[2:]]
    assert rows == [(layer, "right", "a GPU"), (layer, "refused", "a GPU")]
    assert f"{layer:22} " in capsys.readouterr().out
    times.main("right,choosy", "1x8x8x4:4x3x3", 60, output)
    assert f"{layer}: both ends" in capsys.readouterr().out
    times.main("right", "1x8x8x4:4x3x3", -1, output)
    assert "left out: no time" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no kernel left"):
        times.main("left", "resnet", 1, output)
    with pytest.raises(SystemExit, match="claim different things"):
        times.main("right,half", "resnet", 1, output)
