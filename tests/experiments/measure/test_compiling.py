"""Kernels of networks, counted and compiled by a stand-in."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from experiments.measure import compiling
from winolab.gpu.runtime import nvrtc


def test_kernels_are_counted_and_compiled(tmp_path, monkeypatch) -> None:
    import typer

    networks = {"a": {"layers": {"28x28x64>64x3x3p1": 2}, "batches": [1, 32]}}
    networks["b"] = {"layers": {"28x28x64>64x3x3p1": 1}, "batches": [32]}
    monkeypatch.setattr("winolab.bench.networks.networks", lambda: networks)
    monkeypatch.setattr(compiling, "networks", lambda: networks)
    monkeypatch.setattr(compiling, "PRECISIONS", ("fp16",))
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    made: list[str] = []
    monkeypatch.setattr(
        nvrtc,
        "compile_cubin",
        lambda source, arch: made.append(source) or nvrtc.Compiled(source.encode(), {}),
    )
    app, path = typer.Typer(), tmp_path / "rows.jsonl"
    app.command()(compiling.main)
    assert CliRunner().invoke(app, ["--output", str(path)]).exit_code == 0
    rows = {row["network"]: row for row in map(json.loads, path.read_text().splitlines())}
    assert {name: row["calls"] for name, row in rows.items()} == {"a": 6, "b": 3, "all": 9}
    assert rows["b"]["kernels"] < rows["a"]["kernels"] == rows["all"]["kernels"]
    assert not made
    arguments = ["--networks", "b", "--compile", "--output", str(path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["network"] for row in again] == ["a", "all", "b"]
    assert len(made) == again[-1]["kernels"]
    assert again[-1]["over_2_seconds"] == 0
