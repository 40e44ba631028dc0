"""How many clusters of blocks run at once."""

from __future__ import annotations

from winolab.device import Device

CLUSTER_SHARE = {1: 1.0, 2: 1.0, 3: 0.887, 4: 0.91, 8: 0.91}  # of an H100: 39, 30, 15 clusters


def clusters(device: Device, size: int) -> int:
    """Clusters of so many blocks that run at once, a block a multiprocessor: those of a GPC that
    make up no other one stay idle."""
    return max(1, int(device.multiprocessors * CLUSTER_SHARE[size] / size))
