"""What the kernels of Γ are told of a correlation, the same on FFMA and on Tensor Cores."""

from __future__ import annotations

from typing import Protocol, TypeVar

from winolab.gpu.params import MOST, View, uncounted
from winolab.gpu.planner.correlation import Correlation

BEHIND = 1 << 12  # tiles, and work tiles of a round of blocks, that there may be behind the last


class Tiled(Protocol):
    """What a plan of either family says of its correlation and how that is cut."""

    @property
    def correlation(self) -> Correlation: ...
    @property
    def outer(self) -> tuple[int, int, int]: ...
    @property
    def tiles_width(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def blocks_m(self) -> int: ...
    @property
    def blocks_row(self) -> int: ...
    @property
    def work_tiles(self) -> int: ...
    @property
    def whole(self) -> int: ...


P = TypeVar("P", bound=Tiled)


def counted(plans: list[P]) -> list[P]:
    """Those whose tiles 32 bits count, those of blocks behind the last one too. Raises ValueError
    where there are none."""
    found = [p for p in plans if max(p.columns, p.work_tiles) <= MOST - BEHIND]
    if not found:
        raise uncounted("the number of tiles of outputs", plans[0].columns)
    return found


def values(plan: Tiled, x: View, y: View) -> tuple[int, ...]:
    """Values of codegen/fields.py, for a plan of either family."""
    c = plan.correlation
    return (
        *x.strides[:3],
        *y.strides[:3],
        x.strides[3],
        y.strides[3],
        *c.input,
        *c.output,
        *c.padding,
        *plan.outer,
        c.channels,
        c.out_channels,
        plan.tiles_width,
        plan.columns,
        plan.chunks,
        plan.blocks_m,
        plan.blocks_row,
        plan.work_tiles,
        plan.whole,
    )


def filter_map(c: Correlation, w: View, group: int, size: int) -> tuple[int, ...]:
    """A group's filter as the correlation runs over it: the address of its first tap, then strides
    of output and input channels and of the taps. ``size``: bytes of an element.
    """
    m_stride, *taps, c_stride = w.strides
    first = group * (c.channels if c.rotated else c.out_channels) * m_stride
    if c.rotated:
        first += sum((r - 1) * s for r, s in zip(c.filter, taps, strict=True))
        taps = [-s for s in taps]
        m_stride, c_stride = c_stride, m_stride
    return (w.address + size * first, m_stride, c_stride, *taps)
