"""What the kernels of Γ are told of a correlation, the same on FFMA and on Tensor Cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from winolab.gpu.params import INT, LONG

if TYPE_CHECKING:
    from winolab.gpu.params import View
    from winolab.gpu.planner.correlation import Correlation

# The fields of Γ's parameters behind their pointers, as block.cuh gets them. Strides are in
# elements; outer taps are summed directly; a chunk is KC channels; ``tiles_width`` are tiles of n
# outputs in a row, ``columns`` those of all depths and images. A work tile, a block's worth of
# work, is one of ``blocks_m`` blocks of output channels × one of ``blocks_row`` blocks of output
# rows × a block's columns; one block alone sums each of the first ``whole``.
FIELDS = (
    ("x_batch x_depth x_row y_batch y_depth y_row", LONG),
    ("x_pixel y_pixel", INT),
    ("depth height width out_depth out_height out_width", INT),
    ("pad_depth pad_height pad_width taps_depth taps_height taps_width", INT),
    ("channels out_channels tiles_width columns chunks blocks_m blocks_row work_tiles whole", INT),
)


class Geometry(Protocol):
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


def values(plan: Geometry, x: View, y: View) -> tuple[int, ...]:
    """Their values for a plan of either family."""
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
