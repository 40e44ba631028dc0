"""How many clusters of blocks run at once, and how long they take to sum together."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.device import Device
from winolab.gpu.planner.device_model import MODEL, DeviceModel, Walked
from winolab.gpu.planner.rates import overlapped


def clusters(device: Device, size: int, model: DeviceModel = MODEL) -> int:
    """Clusters of so many blocks that run at once, a block a multiprocessor: those of a GPC that
    make up no other one stay idle."""
    share = model.device.clustered_three if size == 3 else model.device.clustered
    return max(1, int(device.multiprocessors * (share if size > 2 else 1.0) / size))


@dataclass(frozen=True)
class Walk:
    """Blocks of ``rows`` × ``columns`` sums, ``blocks`` of a multiprocessor, of which ``split_k``
    have a part of the ``steps`` of a sum each: KC elements of 16 bits of every row and column."""

    rows: int
    columns: int
    blocks: int
    split_k: int
    sums: int  # such blocks, parts of one counted once
    steps: int

    KC = 64

    def seconds(self, device: Device, m: Walked, model: DeviceModel = MODEL) -> float:
        """Predicted time behind the first copies: rounds of clusters, a block's steps, what is
        behind them."""
        at_once = clusters(device, self.split_k, model) * self.blocks
        together = min(self.blocks, -(-self.sums * self.split_k // device.multiprocessors))
        size = self.rows * self.columns * together
        products = m.products * self.KC * size / device.matrix
        copied = 2 * self.KC * (self.rows + self.columns) * together / m.copied
        step = overlapped(model.overlap.call, products, copied, m.step)
        behind = m.sum * size + (m.meeting + m.brought * size) * (self.split_k > 1)
        rounds = -(-self.sums // at_once)
        return rounds * (-(-self.steps // self.split_k) * step + behind) / device.clock
