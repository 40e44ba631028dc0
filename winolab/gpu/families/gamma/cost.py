"""How long a call of Γ on Tensor Cores takes around its main kernel."""

from __future__ import annotations

from winolab.device import Device
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying


def of_call(
    device: Device,
    groups: int,
    seconds: float,
    transformed: int,
    parts: int,
    padded: int,
    model: DeviceModel = MODEL,
) -> float:
    """Seconds of a call whose main kernel takes so many a group; bytes of a group's transformed
    filter, of the copy of x."""
    launch = model.device.launch
    seconds += copying(device, transformed, model) + 2 * launch
    passes = 3 * launch if parts == 2 else 0.0  # of the scales
    if padded:
        passes += launch + copying(device, 2 * padded, model)
    return groups * seconds + passes
