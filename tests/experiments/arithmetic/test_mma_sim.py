"""How sums beside MMA-Sim's are counted, by stand-ins for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.arithmetic import mma_sim
from experiments.arithmetic.tensor_cores import DEPTH, KINDS
from winolab.ref.arithmetic.accumulate import multiply_accumulate
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.tensor_cores import TENSOR_CORES


def stand_in(precision: str, architecture: str, off: int) -> mma_sim.Instruction:
    """An instruction of that architecture, every ``off``-th of whose calls errs in one sum."""
    order, lowest = TENSOR_CORES[architecture].accumulation(precision), FORMATS[precision].emin
    calls = iter(range(10**6))

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        assert a.shape == (mma_sim.ROWS, DEPTH[precision])
        a, b, c = (v.astype(float) for v in (a, b, c))
        y = multiply_accumulate(a, b, c, order, FORMATS["fp32"], 2.0**lowest).astype(np.float32)
        if off and next(calls) % off == 0:
            y[0, 0] = np.nextafter(y[0, 0], np.float32(9))
        return y

    return call


@pytest.mark.parametrize("precision", DEPTH)
def test_equal_bits_are_counted(precision: str) -> None:
    found = mma_sim.compared(stand_in(precision, "ada", 0), "ada", precision, 4096)
    assert found["sums"] == found["equal"] == 8 * 512
    assert all(found[kind] == 512 for kind in KINDS)
    wrong = mma_sim.compared(stand_in(precision, "ada", 4), "ada", precision, 4096)
    assert 4096 - 8 <= wrong["equal"] <= 4096 - 7  # one of an instance a kind, but for NaN
    other = mma_sim.compared(stand_in(precision, "hopper", 0), "ada", precision, 4096)
    assert other["normal"] < 480


def test_what_is_no_checkout_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no mmasim; clone github"):
        mma_sim.loaded(tmp_path)


def test_mma_sim_has_our_bits() -> None:
    """The kept rows: every architecture and format, of one version."""
    rows = [json.loads(line) for line in mma_sim.RESULTS.read_text().splitlines()]
    assert {(r["architecture"], r["precision"]) for r in rows} == {
        (architecture, precision) for architecture in mma_sim.NAMES for precision in DEPTH
    }
    assert len({row["version"] for row in rows}) == 1
    for row in rows:
        assert row["sums"] >= 100_000
        assert row["model"] == str(TENSOR_CORES[row["architecture"]].accumulation(row["precision"]))
        # 0 has an exponent there, as an accumulator or, in one of Ampere's sums, as a factor
        assert (
            row["differ_from_0"] <= row["sums"] - row["equal"] <= 4 * (row["precision"] == "tf32")
        )
        assert all(row[kind] == row["sums"] // 8 for kind in KINDS if kind != "subnormal")
