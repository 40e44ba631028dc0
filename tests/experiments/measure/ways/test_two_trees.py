"""Two trees' calls, in turn: a stand-in answers for a GPU."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.measure.ways import served, two_trees
from experiments.measure.ways.two_trees import NARROW, Side, cases, layers, summarized, timed
from winolab.problem import Problem, shapes

STAND_IN = """
import json, os, sys
import winolab
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("layer") == "broken":
        raise SystemExit("out of memory")
    answer = {"us": winolab.US, "host_us": 7.0, "late": winolab.US > 3}
    print(json.dumps({"bits": winolab.BITS} if asked else answer), flush=True)
"""


@pytest.fixture
def trees(tmp_path: Path, monkeypatch) -> dict[str, Path]:
    """Two folders with a winolab each, and what times them."""
    served = tmp_path / "served.py"
    served.write_text(STAND_IN)
    monkeypatch.setattr(two_trees, "SERVED", served)
    for name, us in (("before", 4.0), ("after", 2.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "winolab.py").write_text(f"US = {us}\nBITS = 'same'\n")
    return {name: tmp_path / name for name in ("before", "after")}


def test_each_side_imports_its_own_tree(trees: dict[str, Path], tmp_path: Path) -> None:
    sides = {name: Side(tree, tmp_path) for name, tree in trees.items()}
    case = {"list": "wide", "layer": "L", "direction": "forward", "precision": "fp32"}
    row = timed(case, sides, rounds=2)
    us = {"before_us": 4.0, "after_us": 2.0, "before_host_us": 7.0, "after_host_us": 7.0}
    assert row == {**case, **us, "late": 2, "same_bits": True}
    said = "all: 0.500 of 1, slowest 0.500 (L), one in twenty over 0.500, 1 with the same bits"
    assert list(summarized([row]))[-1] == f"{said}, 1 with time of the host"
    assert list(summarized([{**row, "late": 0}]))[-1] == said
    with pytest.raises(RuntimeError, match="exit code 1"):
        sides["after"].ask({**case, "layer": "broken"})
    for side in sides.values():
        side.close()


def test_the_layers_are_drawn_once_for_all() -> None:
    assert len({str(layer) for layer in layers()}) == two_trees.LAYERS
    assert layers() == layers()
    for layer in layers("narrow"):
        assert min(layer.channels, layer.problem.out_channels) <= NARROW
        assert set(layer.problem.stride) == {1}
    every = list(cases())
    assert len(every) == two_trees.LAYERS * 12
    for case in every:
        x, w, y = case["operands"][0], case["operands"][1], case["result"]
        if case["direction"] == "forward":
            problem = Problem.of(x, w, padding=case["padding"])
            assert shapes("forward", problem) == (x, w, y)
    assert json.dumps(every[0])


def test_a_tree_beside_itself_says_what_is_noise(
    trees: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are a list of their own, and what has no row is measured first."""
    monkeypatch.setattr(two_trees, "ROOT", trees["after"])
    monkeypatch.setattr(two_trees.bench, "context", dict)
    output = tmp_path / "rows.jsonl"
    main = partial(two_trees.main, which="wide", count=2, seconds=60, jobs=1, label="")
    main(None, most=5, output=output)
    first = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["list"] for row in first] == ["wide twice"] * 5
    assert all(row["before_us"] == row["after_us"] == 2.0 for row in first)
    main(None, most=3, output=output)
    keys = [tuple(json.loads(line).values())[:4] for line in output.read_text().splitlines()]
    assert len(set(keys)) == len(keys) == 8
    slow = {**first[3], "after_us": 2.1}
    assert two_trees.left(first, [*first[:3], slow])[0]["layer"] == slow["layer"]
    assert two_trees.left(first, [*first[:3], slow])[-1] not in (first[3], first[4])
    main(trees["before"], most=1, output=output)
    assert json.loads(output.read_text().splitlines()[-1])["before_us"] == 4.0


class Simulated:
    """PyTorch, and a GPU that works behind the host. Clocks in seconds."""

    uint8 = None

    def __init__(self) -> None:
        self.host = self.gpu = 0.0
        self.cuda, self.calls, self.waits = self, 0, False

    def queue(self, host: float, gpu: float) -> None:
        self.host += host
        self.gpu = max(self.gpu, self.host) + gpu

    def empty(self, size: int, **how: Any) -> Any:
        return SimpleNamespace(fill_=lambda byte: self.queue(5e-6, size / 3.5e12))

    def synchronize(self) -> None:
        self.host = max(self.host, self.gpu)

    def Event(self, enable_timing: bool) -> Any:  # as PyTorch has it
        at: list[float] = []

        def record() -> None:
            self.queue(1e-6, 0.0)
            at.append(self.gpu)

        return SimpleNamespace(
            at=at, record=record, synchronize=self.synchronize, query=lambda: at[0] <= self.host,
            elapsed_time=lambda end: 1e3 * (end.at[0] - at[0]),
        )  # fmt: skip

    def call(self, host: float, gpu: float) -> int:
        """Takes the host so long, the sixteenth 0.4 ms more: it makes a graph; the first of all
        compiles."""
        self.calls += 1
        if self.waits:
            self.synchronize()
        self.queue(host + {1: 1.0, 16: 4e-4}.get(self.calls, 0), gpu)
        return self.calls


@pytest.fixture
def simulated(monkeypatch) -> Simulated:
    made = Simulated()
    monkeypatch.setattr(served.time, "perf_counter", lambda: made.host)
    return made


@pytest.mark.parametrize("host", [2e-5, 4e-4, 5e-3])
def test_times_have_none_of_the_host_s(simulated: Simulated, host: float) -> None:
    """A GPU writes FLUSH in 0.15 ms, and a call of 10 µs takes the host longer."""
    timer = served.Timer(simulated)
    assert timer.warm_up(lambda: simulated.call(host, 1e-5)) == 1
    for _ in range(20):
        answer = timer.time(lambda: simulated.call(host, 1e-5))
        assert answer["us"] == pytest.approx(10, abs=0.1)
        assert answer["host_us"] == pytest.approx(1e6 * host)
        assert not answer["late"]


def test_a_call_that_waits_for_the_gpu_is_late(simulated: Simulated) -> None:
    timer = served.Timer(simulated)
    timer.warm_up(lambda: simulated.call(1e-4, 1e-5))
    simulated.waits = True
    answer = timer.time(lambda: simulated.call(1e-4, 1e-5))
    assert answer["late"]
    assert answer["us"] > 100


def test_long_calls_are_warmed_up_by_few(simulated: Simulated) -> None:
    timer = served.Timer(simulated)
    timer.warm_up(lambda: simulated.call(1e-4, 0.02))
    assert simulated.calls == served.FEW
    timer.warm_up(lambda: simulated.call(1e-4, 1e-5))
    assert simulated.calls == served.FEW + served.WARM
