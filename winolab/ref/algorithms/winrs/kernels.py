"""The kernels Ωα(n, r) of WinRS: their tiles, their blocks, and which pair covers a width."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from winolab.algorithm import Omega, Tile
from winolab.arguments.words import plural
from winolab.device import Device
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

# WinRS, Figure 6; Ω2(1,1) is direct convolution. The figure's "Ω8(2,6)" cannot be: n + r − 1 = 7.
TILES = {
    "fp32": (
        DIRECT,
        *(Tile(5 - r, r) for r in (3, 2)),
        *(Tile(9 - r, r) for r in (7, 6, 5, 4, 3, 2)),
        *(Tile(17 - r, r) for r in (12, 11, 10, 9, 8)),
    ),
    # WinRS, section 5; direct convolution is ours, for widths that the others cannot end.
    "fp16": (DIRECT, Tile(3, 2), Tile(3, 6), Tile(5, 4), Tile(7, 2), Tile(7, 10), Tile(9, 8)),
}
# BN × BM by α (WinRS, footnote 3, the maxima); for direct convolution in FP16 the one of FP32.
BLOCKS = {
    "fp32": {1: (128, 128), 4: (64, 64), 8: (64, 32), 16: (64, 32)},
    "fp16": {1: (128, 128), 4: (128, 64), 8: (128, 64), 16: (64, 64)},
}
STEP = 8  # images of one step of the main loop: BK
THREADS = 256


@dataclass(frozen=True)
class Kernel:
    """Ωα(n, r) in a precision, "fp32" or "fp16"."""

    tile: Tile
    precision: str = "fp32"

    def __str__(self) -> str:
        alpha = 2 if self.tile == DIRECT else self.tile.alpha
        return f"Ω{alpha}({self.tile.n},{self.tile.r})"

    @property
    def block(self) -> tuple[int, int]:
        """BN × BM: output and input channels of a block. Raises ValueError for other α."""
        blocks = BLOCKS[self.precision]
        if self.tile.alpha not in blocks:
            raise ValueError(
                f"{self}: the planner knows blocks for alpha {', '.join(map(str, blocks))} only; "
                "choose n and r with n + r - 1 among them, or use winrs, dwm or direct"
            )
        return blocks[self.tile.alpha]

    @property
    def intensity(self) -> float:
        """FLOP of the products per element loaded (WinRS, eq. 4, with its missing α)."""
        bn, bm = self.block
        return 2 * self.tile.alpha * bn * bm / (bn * self.tile.r + bm * self.tile.alpha)

    @property
    def resident(self) -> int:
        """Blocks a multiprocessor holds: two where accumulators take 64 registers a thread."""
        bn, bm = self.block
        a_register = 2 if self.precision == "fp16" else 1
        return 2 if bn * bm * self.tile.alpha <= 64 * THREADS * a_register else 1

    @cached_property
    def transform_instructions(self) -> tuple[int, int]:
        """Instructions of one tile of dy and of x: loads, program and stores."""
        tile = self.tile
        if tile == DIRECT:
            return 2, 2
        programs = programs_of(Omega((tile,), "paper"))(tile)
        g, bt = programs.G.counts.instructions, programs.BT.counts.instructions
        return g + tile.r + tile.alpha, bt + 2 * tile.alpha

    def step_cycles(self, device: Device) -> float:
        """Cycles of a multiprocessor for a step: BN × BM tiles, STEP images of one unit.

        Products run on the FP32 lanes or on the Tensor Cores, transforms always on the lanes.
        Raises ValueError for FP16 on a device without Tensor Cores.
        """
        bn, bm = self.block
        rate = device.lanes if self.precision == "fp32" else device.tensor
        if not rate:
            raise ValueError(f"{device.name} has no Tensor Cores; plan it in fp32")
        dy, x = self.transform_instructions
        products = bn * bm * self.tile.alpha / rate
        return STEP * (products + (bn * dy + bm * x) / device.lanes)

    def throughput(self, device: Device) -> float:
        """Multiply-adds of direct convolution a cycle and multiprocessor: a pair's weights."""
        bn, bm = self.block
        return STEP * bn * bm * self.tile.n * self.tile.r / self.step_cycles(device)


def kernels(width: int, precision: str, points: str, admissible: bool = True) -> tuple[Kernel, ...]:
    """The kernels whose n divides ``width`` taps (WinRS, section 4.1, criterion 1).

    A list of points serves those with as many states, others take their best. With
    ``admissible``, those only whose predicted error stays within ADMISSIBLE times direct's.
    """
    if precision not in TILES:
        raise ValueError(f"precision {precision!r}; kernels exist for {', '.join(TILES)}")
    return tuple(
        _kernel(tile, precision)
        for tile in TILES[precision]
        if width % tile.n == 0 and (not admissible or error_ratio(tile, points) <= ADMISSIBLE)
    )


@lru_cache(maxsize=64)
def _kernel(tile: Tile, precision: str) -> Kernel:
    return Kernel(tile, precision)


@dataclass(frozen=True)
class Pair:
    """k0 units of the faster kernel, then k1 of the other: k0·r0 + k1·r1 = width of dy."""

    first: Kernel
    units: int
    second: Kernel | None = None
    rest: int = 0

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)


def pair(
    width: int, choice: tuple[Kernel, ...], others: tuple[Kernel, ...], device: Device
) -> Pair:
    """The pair that covers ``width`` elements of dy in the least modelled time (section 4.1).

    The first kernel is one of ``choice``, the second one of ``others``. Raises ValueError where no
    pair covers the width without padding (criterion 2).
    """
    best, least = None, float("inf")
    weight = {k: _weight(k, device) for k in (*choice, *others)}
    slowness = {k: w / k.tile.r for k, w in weight.items()}
    for first in choice:
        r0 = first.tile.r
        for second in others:
            if len(choice) > 1 and slowness[second] < slowness[first]:
                continue  # the faster one takes the bulk
            units = width // r0
            while units and (width - units * r0) % second.tile.r:
                units -= 1
            if not units:
                continue
            rest = (width - units * r0) // second.tile.r
            time = units * weight[first] + rest * weight[second]
            if time < least:
                least = time
                best = Pair(first, units, second if rest else None, rest)
    if best is None:
        names = ", ".join(map(str, choice))
        raise ValueError(
            f"no pair of {names} covers {plural(width, 'element')} of dy; use direct, or winrs to "
            "choose"
        )
    return best


@lru_cache(maxsize=1024)
def _weight(kernel: Kernel, device: Device) -> float:
    """Cycles a unit, an output tap and a multiply-add of the block."""
    bn, bm = kernel.block
    return kernel.step_cycles(device) / (bn * bm * kernel.tile.n)
