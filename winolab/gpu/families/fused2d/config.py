"""Kernel configs of the fused kernel: its policies, and which of them a request is offered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from winolab.gpu.families.fused2d.layouts import TILES, Layout, layout
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request
from winolab.options import KernelConfig

KC, TEAM, CONSUMERS = 8, 128, 256  # channels of a stage; threads, as block.cuh has them
ORDERS = ("nhwc", "nchw", "chwn")
WIDTHS = (64, 32)  # output channels of a block


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of one kernel: the policies of the papers' fused kernels.

    ``bm``: output channels of a block, 64 (Yan et al., openCNN) or 32 (Lavin & Gray, cuDNN).
    ``fused``: the filter is transformed in the block, without a workspace; otherwise by a launch
    of its own (Lavin & Gray's FX). ``layout``: of the output transform's buffer (layouts.py), of
    which there are ``buffers``. ``order``: how x and y lie in memory. ``images``, ``rows``,
    ``columns``: the box of 32 tiles that a block computes (Lavin & Gray's superblocks), or zeros:
    tiles follow one another. ``group``: blocks of output channels that go over all tiles together
    (Lavin & Gray: 128 filters), or 0: all of them. ``split_k``: parts of the sum, which blocks
    compute apart and another launch adds up; 0: as many as the model says.
    """

    bm: int = 64
    layout: str = "channels"
    fused: bool = False
    order: str = "nhwc"
    images: int = 0
    rows: int = 0
    columns: int = 0
    group: int = 0
    split_k: int = 0
    buffers: int = 1
    u_stages: int = 3
    v_stages: int = 2
    teams: int = 1  # of 128 producers, which take turns at the stages
    ahead: bool = False  # in one team, pixels are loaded before those of the last stage are used
    xvec: int = 2  # neighbours of a load of x: channels, of CHWN images; 1 where not aligned
    yvec: int = 2  # outputs of a store of y
    consumer_registers: int = 192  # of a thread; 0 and 0: as many as the launch gives
    producer_registers: int = 120

    def __post_init__(self) -> None:
        if self.bm not in WIDTHS:
            raise ValueError(f"bm={self.bm}: blocks of F(2×2,3×3) have 64 or 32 output channels")
        if self.order not in ORDERS:
            raise ValueError(f"order {self.order!r}; expected one of {', '.join(ORDERS)}")
        box = self.images * self.rows * self.columns
        if box not in (0, TILES) or (not box and (self.images or self.rows or self.columns)):
            raise ValueError(
                f"a box of {self.images} × {self.rows} × {self.columns} tiles: a block has "
                f"{TILES}; 0 × 0 × 0 for tiles that follow one another"
            )
        if self.split_k < 0:
            raise ValueError(f"split_k={self.split_k}; expected 1 or more parts, or 0")
        if self.buffers not in (1, 2) or self.teams not in (1, 2):
            raise ValueError(f"buffers={self.buffers}, teams={self.teams}; expected 1 or 2 of each")
        if self.ahead and self.teams > 1:
            raise ValueError(
                f"ahead with teams={self.teams}: loads run ahead in one team, since two take turns"
            )
        if min(self.u_stages, self.v_stages) < 2:
            raise ValueError(f"{self.u_stages}+{self.v_stages} stages; expected 2 or more of each")
        layout(self.layout, self.bm)

    @property
    def memory_order(self) -> str:
        """How x and y lie in memory."""
        return self.order

    @property
    def staged(self) -> Layout:
        """The layout of the output transform's buffer."""
        return layout(self.layout, self.bm)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return CONSUMERS + self.teams * TEAM

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        u, v = 16 * KC * (self.bm + (4 if self.fused else 0)), 16 * KC * (TILES + 4)
        floats = self.u_stages * u + self.v_stages * v + self.buffers * 16 * self.staged.plane
        places = (self.v_stages + 1) * (12 * TILES + 8)
        return 4 * floats + places + 16 * (self.u_stages + self.v_stages)

    def constants(self) -> dict[str, int]:
        """The constants of the source, by name."""
        names = ("bm", "fused", "buffers", "u_stages", "v_stages", "teams", "ahead", "xvec", "yvec")
        registers = ("consumer_registers", "producer_registers")
        return {
            **{name.upper(): int(getattr(self, name)) for name in (*names, *registers)},
            "BOX_IMAGES": self.images,
            "BOX_ROWS": self.rows,
            "BOX_COLUMNS": self.columns,
            "ALONG_TILES": int(self.order != "nhwc"),
            "IMAGES_FIRST": int(self.order == "chwn"),
            "SPLIT": int(self.split_k > 1),
        }

    def __str__(self) -> str:
        changed = [
            f"{f.name}={int(v) if isinstance(v := getattr(self, f.name), bool) else v}"
            for f in fields(self)
            if f.name not in ("bm", "layout", "u_stages", "v_stages")
            and not f.name.endswith("registers")
            and getattr(self, f.name) != f.default
        ]
        stages = f"{self.u_stages}+{self.v_stages}"
        return " ".join([f"{self.bm}x{TILES}x{KC} {self.layout} stages={stages}", *changed])


def narrow(**changes: Any) -> Config:
    """Blocks of 32 output channels: their consumers leave registers for two teams."""
    usual = {"bm": 32, "teams": 2, "consumer_registers": 0, "producer_registers": 0}
    return Config(**{**usual, **changes})


GRADIENT = narrow(fused=True, layout="sts64_final")  # of dw, by 32 × 32 channels
# Parts of a sum that are tried: more would cost more workspace than they gain.
MOST_PARTS = 256


def fitted(config: Config, c: Correlation, direction: str, aligned: bool) -> Config:
    """The config with vectors as wide as the arrays allow."""
    x = y = aligned and config.order != "nchw"
    along = config.staged.along
    if direction == "backward_filter":
        x = y = aligned and c.channels % 2 == 0
        along = "filters" if along == "tiles" else ""  # of dw input channels are neighbours
    elif config.order == "nhwc":
        x, y = x and c.channels % 2 == 0, y and c.out_channels % 2 == 0
    elif c.batch % 2 or config.images % 2:
        x = y = False
    order = config.order
    if config.split_k > 1:  # parts lie channels last, aligned
        order, y = "nhwc", c.out_channels % 2 == 0
        if direction == "backward_filter":
            y = c.channels % 2 == 0
    y = y and along == {"nhwc": "filters", "chwn": "tiles"}.get(order)
    return replace(config, xvec=2 if x else 1, yvec=2 if y else 1)


def splits(chunks: int, work_tiles: int, multiprocessors: int) -> list[int]:
    """Numbers of parts of a sum that may be the fastest: one, and those that fill the GPU with few
    rounds of blocks."""
    found = {1}
    for rounds in range(1, 4):
        count = min(rounds * multiprocessors // max(1, work_tiles), chunks, MOST_PARTS)
        if count > 1:
            found.add(math.ceil(chunks / math.ceil(chunks / count)))  # parts of as many stages
    return sorted(found)


def configs(request: Request, c: Correlation) -> Iterator[Config]:
    """Every config that a request is offered, or the one that it names."""
    asked, gradient = request.config_of(Config), request.direction == "backward_filter"
    ahead = c.channels > KC  # nothing is ahead of a single stage
    one = Config(ahead=ahead), Config(ahead=ahead, fused=True)
    offers = (*one, narrow(), narrow(fused=True))
    if gradient:
        offers = (GRADIENT,)
        if asked and (not asked.fused or asked.order != "nhwc" or asked.images):
            raise ValueError(
                f"config {asked}: gradients of the fused F(3×3,2×2) take fused=True, NHWC, no boxes"
            )
    for config in (asked,) if asked else offers:
        found = fitted(config, c, request.direction, request.aligned)
        if found.shared_memory > request.device.shared_memory and found.u_stages > 2:
            found = replace(found, u_stages=2)
        if found.shared_memory <= request.device.shared_memory:
            yield found
