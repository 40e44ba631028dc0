"""Datasheets: peaks that follow from them are the published ones; names are found or listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from winolab.device import DATASHEETS, H100, datasheet

# Published peaks in TFLOPS: FP32, and dense FP16 Tensor Core where there is one.
PEAKS = {
    "titanx": (6.6, None),
    "v100": (15.7, 125),
    "rtx2080ti": (13.4, 107.6),
    "rtx3060ti": (16.2, 64.8),
    "rtx3090": (35.6, 142),
    "rtx4090": (82.6, 330.3),
    "l40s": (91.6, 362),
    "a5000": (27.8, 111.1),
    "a100": (19.5, 312),
}


@pytest.mark.parametrize("name", PEAKS)
def test_peaks_follow_from_lanes_and_clocks(name: str) -> None:
    fp32, fp16 = PEAKS[name]
    assert DATASHEETS[name].fp32_peak / 1e12 == pytest.approx(fp32, rel=0.02)
    assert DATASHEETS[name].fp16_peak / 1e12 == pytest.approx(fp16 or 0, rel=0.02)


# Published peaks of FP16 products with FP32 sums, in TFLOPS.
@pytest.mark.parametrize(
    ("name", "peak"), [("v100", 125), ("a100", 312), ("rtx3090", 71), ("rtx4090", 165.2)]
)
def test_sums_in_fp32_run_at_half_the_rate_on_geforce(name: str, peak: float) -> None:
    device = DATASHEETS[name]
    rate = 2 * device.matrix * device.multiprocessors * device.clock
    assert rate / 1e12 == pytest.approx(peak, rel=0.02)


def test_tensor_cores_follow_from_the_compute_capability() -> None:
    """So of one that no datasheet here has: at least so much, and no peak; none before 7.0."""
    for capability, tensor in (((6, 1), 0), ((8, 7), 256), ((10, 0), 256), ((12, 0), 256)):
        device = replace(H100, compute_capability=capability)
        assert (device.tensor, device.fp16_peak) == (tensor, 0)


def test_hopper_at_its_driver_s_clock() -> None:
    """The data sheet's 989 TFLOPS are at 1.83 GHz; the driver states 1.98 GHz as the maximum."""
    for name in ("h100", "h200"):
        device = DATASHEETS[name]
        assert device.fp16_peak * 1.83e9 / device.clock == pytest.approx(989e12, rel=0.01)
    assert DATASHEETS["h200"].bandwidth > H100.bandwidth


@pytest.mark.parametrize("text", ["rtx4090", "RTX 4090", "RTX-4090", "NVIDIA GeForce RTX 4090"])
def test_names_are_read_as_people_write_them(text: str) -> None:
    assert datasheet(text) is DATASHEETS["rtx4090"]
    assert datasheet("NVIDIA RTX A5000") is DATASHEETS["a5000"]


def test_names_that_drivers_give_are_found() -> None:
    for device in DATASHEETS.values():
        assert datasheet(device.name) is device


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"expected one of titanx, v100, .*, h200"):
        datasheet("rtx5090")
