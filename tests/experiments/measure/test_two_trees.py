"""Two trees' calls, in turn: a stand-in answers for a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.measure.ways import two_trees
from experiments.measure.ways.two_trees import NARROW, Side, cases, layers, summarized, timed
from winolab.problem import Problem, shapes

STAND_IN = """
import json, os, sys
import winolab
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("layer") == "broken":
        raise SystemExit("out of memory")
    print(json.dumps({"bits": winolab.BITS} if asked else {"us": winolab.US}), flush=True)
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
    assert row == {**case, "before_us": 4.0, "after_us": 2.0, "same_bits": True}
    assert list(summarized([row]))[-1] == "all: 0.500 of 1, slowest 0.500 (L), 1 with the same bits"
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
