"""How many clusters of blocks run at once."""

from __future__ import annotations

from winolab.device import Device
from winolab.gpu.planner.device_model import MODEL, DeviceModel


def clusters(device: Device, size: int, model: DeviceModel = MODEL) -> int:
    """Clusters of so many blocks that run at once, a block a multiprocessor: those of a GPC that
    make up no other one stay idle."""
    share = model.device.clustered_three if size == 3 else model.device.clustered
    return max(1, int(device.multiprocessors * (share if size > 2 else 1.0) / size))
