"""What memory and L2 give by the device model, and how what goes on at once overlaps."""

from __future__ import annotations

from winolab.device import H100, Device
from winolab.gpu.planner.device_model import MODEL, DeviceModel


def copying(device: Device, size: float, model: DeviceModel = MODEL) -> float:
    """Seconds in which device memory reads or writes so many bytes."""
    return size / (model.device.copy * device.memory_rate)


def from_l2(device: Device, size: float, model: DeviceModel = MODEL) -> float:
    """Seconds in which L2 gives so many bytes to all multiprocessors together."""
    return size / (l2_bytes_a_cycle(model) * device.multiprocessors * device.clock)


def l2_bytes_a_cycle(model: DeviceModel = MODEL) -> float:
    """What L2 gives a multiprocessor, where all ask."""
    return model.device.l2 / (H100.multiprocessors * H100.clock)


def of_passes(passes: int, model: DeviceModel = MODEL) -> float:
    """The exponent of a call's sums beside what its arrays take, whose blocks have so many work
    tiles one after another: of one, results are stored when everything has been read."""
    o = model.overlap
    return o.reading + (o.call - o.reading) * (1 - 1 / max(1, passes))


def overlapped(sharp: float, *seconds: float) -> float:
    """The time of what goes on at once: the longest, more where others are nearly as long."""
    longest = max(seconds)
    if longest <= 0:
        return 0.0
    return longest * sum([(s / longest) ** sharp for s in seconds]) ** (1 / sharp)
