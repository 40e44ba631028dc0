"""What an H200 measured of the simulated arithmetics, and how such rows are judged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.arithmetic import gpu_simulation, tensor_cores
from winolab.gpu.runtime import nvrtc
from winolab.ref.arithmetic.accumulate import multiply_accumulate
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.tensor_cores import TENSOR_CORES

HOPPER = TENSOR_CORES["hopper"]


def test_hoppers_presets_are_what_was_measured() -> None:
    """Every sum by exponent fields, which presets have; normalised ones differ where numbers are
    subnormal alone. An H100's rows may be of the presets alone.
    """
    rows = [json.loads(line) for line in tensor_cores.RESULTS.read_text().splitlines()]
    for row in rows:
        if row["model"] == str(HOPPER.accumulation(row["precision"])):
            assert row["alignment"] == "normalised" or row["equal"] == row["sums"] == 1 << 20
    rows = [row for row in rows if row["device"] == "NVIDIA H200"]
    for precision in tensor_cores.DEPTH:
        for instruction in tensor_cores.KERNELS.values():
            mine = [
                r for r in rows if (r["precision"], r["instruction"]) == (precision, instruction)
            ]
            ours = [r for r in mine if r["model"] == str(HOPPER.accumulation(precision))]
            normalised = {row["alignment"]: row for row in ours}["normalised"]
            for kind in tensor_cores.KINDS:
                assert kind == "subnormal" or normalised[kind] == 1 << 17
            others = [r for r in mine if r not in ours]
            assert len(others) == 8
            assert all(row["equal"] < 0.97 * row["sums"] for row in others)


def test_gpus_sums_have_numpys_bits_at_the_speed_aimed_at() -> None:
    """Two hundred times 0.47·10⁹ by the kernel of every order."""
    rows = [json.loads(line) for line in gpu_simulation.RESULTS.read_text().splitlines()]
    assert [row["precision"] for row in rows] == list(gpu_simulation.ARITHMETICS)
    for row in rows:
        assert row["equal"] == row["results"] == 68_000
        assert row["kernel_per_second"] >= 200 * 0.47e9


@pytest.mark.parametrize("precision", tensor_cores.DEPTH)
def test_outputs_are_judged_bit_for_bit(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_cores, "INSTANCES", 64)
    order = HOPPER.accumulation(precision)
    lowest = 2.0 ** FORMATS[precision].emin
    made = multiply_accumulate(*tensor_cores.operands(precision), order, FORMATS["fp32"], lowest)
    with np.errstate(all="ignore"):
        made = made.astype(np.float32)
    made[0, 0, 0] = np.nextafter(made[0, 0, 0], np.float32(9))
    rows = {(r["model"], r["alignment"]): r for r in tensor_cores.judged(precision, {"mma": made})}
    row = rows[str(order), "exponent fields"]
    assert row["equal"] == row["sums"] - 1
    assert row["normal"] == row["positive"] - 1
    assert list(tensor_cores.judged(precision, {"mma": made}, preset=True)) == [row]


@pytest.mark.parametrize("precision", tensor_cores.DEPTH)
def test_kernels_compile_for_hopper(precision: str) -> None:
    made = nvrtc.compile_cubin(tensor_cores.source(precision), "sm_90a")
    assert set(made.resources) == set(tensor_cores.KERNELS)
    assert not any(kernel.spills for kernel in made.resources.values())
