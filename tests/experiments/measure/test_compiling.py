"""Kernels of networks, counted and compiled by a stand-in."""

from __future__ import annotations

import json
import time

import pytest
from typer.testing import CliRunner

from experiments.measure import compiling
from winolab.gpu import warm
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache.source import Source


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
    (*_, last) = again
    assert len(made) == last["kernels"] == last["each_seconds"]["units"]
    assert last["over_2_seconds"] == 0
    assert 0 <= last["each_seconds"]["median"] <= last["each_seconds"]["longest"] < 1
    assert sum(each["units"] for each in last["by_family"].values()) == last["kernels"]
    assert last["nvrtc"] == "12.9"


def test_units_that_networks_share_are_compiled_once(monkeypatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(compiling, "worked", lambda unit: made.append(unit.title) or 2.5)
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    one, two = (
        {(Source.of(text), "sm_90a"): warm.Unit(f"Γ{text}(6,3) fp32", Source.of(text), "sm_90a")
         for text in texts}
        for texts in ("8", "89")
    )  # fmt: skip
    seconds: dict = {}
    assert compiling.compiled(one, seconds)["over_2_seconds"] == 1
    both = compiling.compiled(two, seconds, threads=2)
    assert sorted(made) == ["Γ8(6,3) fp32", "Γ9(6,3) fp32"]
    assert (both["cpu_seconds"], both["over_2_seconds"]) == (5.0, 2)
    assert both["by_family"] == {"Γ": {"units": 2, "median": 2.5, "longest": 2.5}}


def test_seconds_are_those_of_a_processor(monkeypatch) -> None:
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda source, arch: time.sleep(0.3))
    source = Source.of("nothing")
    assert compiling.worked(warm.Unit("a unit", source, "sm_90a")) < 0.2  # it waits, and works none


@pytest.mark.parametrize(
    ("title", "family"),
    [
        ("Γ8(5,4) fp32_split rows=8 share=4 u_ring=2, filter", "Γ, filter"),
        ("direct fp32 64x64x16, fallback", "direct, fallback"),
        ("F(2×2,3×3) fp32 32x32x8 channels stages=3+2 teams=2", "F"),
        ("Ω2(1,1) fp32_split 64x64 columns, taps=4 stages=3 depth=4", "Ω by columns"),
        ("depthwise fp16 rows 16x2 columns=7 strips=1", "depthwise"),
        ("a copy of x in another memory order", "a copy"),
        ("phases as channels", "phases as channels"),
    ],
)
def test_families_are_titles_without_configurations(title: str, family: str) -> None:
    assert compiling.family(title) == family
