"""Devices as a driver describes them, which plans then read: those of the datasheets."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from winolab.algorithm import parse_algorithm
from winolab.device import DATASHEETS, Device, datasheet
from winolab.gpu import driver
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.problem import Problem

# What drivers state: bytes of memory, and kHz and bits of its bus, beside what a datasheet has.
STATED = {
    "h100": (85_028_765_696, 2_619_000, 5120),
    "h200": (150_120_824_832, 3_201_000, 6016),
    "a100": (85_174_321_152, 1_593_000, 5120),
    "rtx4090": (25_386_352_640, 10_501_000, 384),
    "v100": (16_945_512_448, 877_000, 4096),
}


@pytest.fixture
def stated(monkeypatch) -> Any:
    """``stated(name)``: the device, as a driver states the one of that datasheet."""

    def of(name: str) -> Device:
        device, (memory, khz, bits) = datasheet(name), STATED[name]
        properties = {
            "name": device.name.encode(), "major": device.compute_capability[0],
            "minor": device.compute_capability[1], "l2CacheSize": device.l2,
            "multiProcessorCount": device.multiprocessors, "totalGlobalMem": memory,
            "sharedMemPerBlockOptin": device.shared_memory,
        }  # fmt: skip
        runtime = SimpleNamespace(
            getDeviceProperties=lambda index: properties,
            deviceGetAttribute=lambda which, index: which,
            cudaDevAttrClockRate=round(device.clock / 1e3),
            cudaDevAttrMemoryClockRate=khz,
            cudaDevAttrGlobalMemoryBusWidth=bits,
        )
        host = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        monkeypatch.setattr(driver, "cupy", lambda: host)
        return driver.device.__wrapped__(0)

    return of


def rates(device: Device) -> dict[str, Any]:
    """All that planning derives of a device."""
    return {
        name: getattr(device, name)
        for name, what in vars(Device).items() if isinstance(what, property)
    }  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_a_gpu_is_what_its_datasheet_says(stated, name: str) -> None:
    as_said(stated(name), datasheet(name))


@pytest.mark.gpu
def test_the_gpu_at_hand_is_what_its_datasheet_says() -> None:
    found = driver.device(0)
    if found.name not in {device.name for device in DATASHEETS.values()}:
        pytest.skip(f"no datasheet of {found.name}")
    as_said(found, datasheet(found.name))


def as_said(found: Device, expected: Device) -> None:
    """All but the memory, of which the driver keeps some, and the last digits of the bandwidth."""
    assert found.bandwidth == pytest.approx(expected.bandwidth, rel=3e-3)
    assert 0.9 * expected.memory < found.memory <= expected.memory
    same = replace(found, memory=expected.memory, bandwidth=expected.bandwidth)
    assert same == expected
    for rate, value in rates(found).items():
        assert value == pytest.approx(rates(expected)[rate], rel=3e-3), rate


LAYER = Problem.of((8, 14, 14, 64), (64, 3, 3, 64), padding=1)


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("precision", ["fp32", "fp32_ffma", "fp32_split", "fp16", "bf16"])
def test_plans_of_a_gpu_are_those_of_its_datasheet(stated, direction: str, precision: str) -> None:
    algorithms = [None, "direct", "gamma:8:6:3"]
    if direction == "backward_filter":
        algorithms = [None, "direct", "winrs"]

    def text(device: Device, named: str | None) -> str:
        try:
            algorithm = parse_algorithm(named) if named else None
            made = plan(Request(LAYER, direction, device, algorithm, precision))
            return re.sub(r"predicted.*", "", str(made))
        except ValueError as error:
            return f"refused: {error}"

    for named in algorithms:
        found = text(stated("h100"), named)
        assert found == text(datasheet("h100"), named)
        assert "Tensor Cores; plan it in fp32" not in found
