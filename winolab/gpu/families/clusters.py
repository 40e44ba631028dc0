"""Clusters of blocks: how many run at once; those that share sums in 16 bits: shapes and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from winolab.device import H100, SYSTEM, Device
from winolab.gpu.families.im2col_maps import ROW_BYTES
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import l2_bytes_a_cycle, overlapped
from winolab.options import KernelConfig

if TYPE_CHECKING:
    from winolab.gpu.planner.device_sections import Walked

KC = 64  # elements of a row or a column that a step sums
MOST_SPLITS = 8  # blocks of a cluster that every device can run
MOST_SUMS = 128 * 256  # of a block
MOST_SHARED = H100.shared_memory  # bytes of a block
MOST_STAGES = 8
PARTS = 3  # products of FP32's TF32 parts, at half the rate, of half as many elements a step


def clusters(device: Device, size: int, model: DeviceModel = MODEL) -> int:
    """Clusters of so many blocks that run at once, a block a multiprocessor: those of a GPC that
    make up no other one stay idle."""
    share = model.device.clustered_three if size == 3 else model.device.clustered
    return max(1, int(device.multiprocessors * (share if size > 2 else 1.0) / size))


def even(work_tiles: int, most: int) -> int:
    """The fewest blocks that take as many rounds as ``most`` do."""
    rounds = -(-work_tiles // most)
    return -(-work_tiles // rounds)


class SharedSums(KernelConfig):
    """What block shapes have in common whose clusters add up sums by codegen/kernels/
    cluster_sums.cuh: families have fields of these names, and say what else they hold."""

    stages: int  # steps on their way
    split_k: int  # blocks of a cluster, which have a part of the steps each
    blocks: int  # of a multiprocessor
    tf32: int  # whether parts of FP32 numbers are multiplied

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of sums."""
        raise NotImplementedError

    @property
    def stage(self) -> int:
        """Bytes that a stage's copies bring."""
        raise NotImplementedError

    @property
    def scratch(self) -> int:
        """Bytes of shared memory beside stages, sums and barriers: TF32's parts of two steps'
        columns."""
        return 2 * 2 * ROW_BYTES * self.sides[1] * bool(self.tf32)

    @property
    def depth(self) -> int:
        """Elements of a row that a step sums."""
        return KC // 2 if self.tf32 else KC

    @property
    def times(self) -> int:
        """By how much a step's products take longer than 16 bits'."""
        return PARTS if self.tf32 else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of sums."""
        return 4 * (self.sides[1] + 8)

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory: stages with two barriers each, other parts' sums, a
        barrier."""
        others = (self.split_k - 1) * -(-self.sides[0] // self.split_k) * self.row_bytes
        return self.stages * (self.stage + 16) + max(others, 16) + self.scratch + 8

    @property
    def runs(self) -> bool:
        """Whether there is such a block: of columns that wgmma takes, whose sums fit where its
        stages were."""
        rows, columns = self.sides
        taken = rows in (64, 128, 192, 256) and columns in range(32, 257, 32)
        # Two blocks may have 1 KiB more than this; seven stages in place of six are not measured.
        held = self.blocks * (self.shared_memory + SYSTEM * (self.blocks > 1)) <= MOST_SHARED
        counts = 1 <= self.split_k <= MOST_SPLITS and self.stages > 1 and self.tf32 in (0, 1)
        room = rows * self.row_bytes <= self.stages * self.stage
        return taken and held and counts and room and rows * columns <= MOST_SUMS

    def __str__(self) -> str:
        named = ("split_k", "blocks")
        more = "".join(f" {name}={n}" for name in named if (n := getattr(self, name)) > 1)
        rows, columns = self.sides
        more += " tf32=1" * bool(self.tf32)
        return f"{rows}x{columns} positions, stages={self.stages}{more}"


Shape = TypeVar("Shape", bound=SharedSums)


def as_many_stages_as_fit(
    made: Callable[[int, int, int, int, int], Shape],
    shapes: Iterable[tuple[int, int, int]],
    splits: Iterable[int],
    least: int,
) -> Iterator[Shape]:
    """Configs of each shape, which has rows, columns and blocks of a multiprocessor, and number of
    parts: made of the shape, stages, parts and blocks, with ``least`` stages and more."""
    for rows, columns, blocks in shapes:
        for split_k in splits:
            counts = range(MOST_STAGES, least - 1, -1)
            every = (made(rows, columns, stages, split_k, blocks) for stages in counts)
            yield from [v for v in every if v.runs][:1]


@dataclass(frozen=True)
class Walk:
    """Blocks of ``rows`` × ``columns`` sums, ``blocks`` of a multiprocessor, of which ``split_k``
    have a part of the ``steps`` of a sum each, of operands of ``data`` bytes. ``lines``: what
    copies of rows, and of columns, cost by the lines that they touch (boxes.lines). ``times``: by
    how much a step's products take longer than 16 bits'."""

    rows: int
    columns: int
    blocks: int
    split_k: int
    sums: int  # such blocks, parts of one counted once
    steps: int
    data: int
    lines: tuple[float, float] = (1.0, 1.0)
    times: int = 1

    def seconds(self, device: Device, m: Walked, model: DeviceModel = MODEL) -> float:
        """Predicted time behind the first copies: rounds of clusters, a block's steps, what is
        behind them."""
        at_once = clusters(device, self.split_k, model) * self.blocks
        together = min(self.blocks, -(-self.sums * self.split_k // device.multiprocessors))
        # Blocks that read the same lines at once have them of L2 together. What L2 does not hold
        # keeps them apart: it gives lines one by one (docs/notes/110).
        missed = max(0.0, 1 - model.device.kept * device.l2 / max(1, self.data))
        taken = 1 / ((1 - missed) / m.copied + missed / min(m.copied, l2_bytes_a_cycle(model)))
        size = self.rows * self.columns * together
        products = m.products * self.times * KC * size / device.matrix
        rows, columns = self.rows * self.lines[0], self.columns * self.lines[1]
        copied = 2 * KC * (rows + columns) * together / taken
        step = overlapped(model.overlap.call, products, copied, m.step)
        behind = m.sum * size + (m.meeting + m.brought * size) * (self.split_k > 1)
        rounds = -(-self.sums // at_once)
        return rounds * (-(-self.steps // self.split_k) * step + behind) / device.clock
