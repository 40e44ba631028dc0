"""On paper: what wgmma could make of a fused F(m×m, 3×3), beside what is picked today. No GPU.

``python -m experiments.measure.fused.on_paper`` prints, for ResNet's and VGG-E's layers in split
FP32 and in FP16, the least time of such a kernel by the timing model of Γ on Tensor Cores
(``winolab/gpu/families/gamma_wgmma/cost.py``, fitted to measured times): blocks of every size that
registers hold, filters in registers or in a ring, shared by pairs of blocks or not, sums in parts.
Nothing is charged but what a stage moves and computes: a kernel that is built can be slower alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import typer

from experiments.harness.tables import stored
from experiments.measure.fused.beside import VGG_E
from winolab.algorithm import Problem
from winolab.bench.layers import RESNET
from winolab.device import H100
from winolab.gpu.families.gamma.config import KC, PARTS
from winolab.gpu.families.gamma.cost import of_call
from winolab.gpu.families.gamma_wgmma.cost import HALF, Stage
from winolab.gpu.params import SHARED_LINE
from winolab.gpu.planner import planner
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.rates import copying, l2_bytes_a_cycle, overlapped
from winolab.gpu.planner.request import Request
from winolab.ref.arithmetic.split import products

TAPS, ROWS = 3, 64  # of a filter's side; of wgmma's left operand
CONSUMERS, SHARED = 256, 227 << 10  # threads that hold sums; bytes of a block's shared memory
# Sums of a thread at most: of split products, whose sums leave the Tensor Core, as many as Γ's; of
# 16 bits what 255 registers leave beside addresses.
SUMS = {1: 192, 2: 128}
STAGES = 2
SPLITS = (1, 2, 4, 8)
PRECISIONS = {"fp32_split": "fp32", "fp16": "fp16"}  # and what the planner is asked for


@dataclass(frozen=True)
class Fused:
    """A block of F(m×m, 3×3): ``channels`` × ``tiles`` in all states, KC channels a stage."""

    m: int
    channels: int
    tiles: int
    parts: int  # of 16 bits, of an operand
    held: bool  # filters go from L2 to registers; else through a ring in shared memory
    pair: bool  # two blocks bring filters for one another
    split_k: int = 1

    @property
    def states(self) -> int:
        """α²."""
        return (self.m + TAPS - 1) ** 2

    @property
    def sums(self) -> int:
        """Sums of a consumer."""
        return self.states * self.channels * self.tiles // CONSUMERS

    @property
    def box(self) -> int:
        """Pixels of the least box of x: tiles as square as they come."""
        side = 2 ** round(math.log2(self.tiles) / 2)
        return (side * self.m + 2) * (-(-self.tiles // side) * self.m + 2)

    @property
    def filters(self) -> int:
        """Bytes of a stage's filters."""
        return self.states * self.channels * KC * HALF * self.parts

    @property
    def input(self) -> int:
        """Bytes of a stage's transformed input."""
        return self.states * self.tiles * KC * HALF * self.parts

    @property
    def size(self) -> int:
        """Bytes of an element of x."""
        return 4 if self.parts == 2 else HALF

    @property
    def memory(self) -> int:
        """Bytes of shared memory: stages of input, boxes, and filters where they wait there."""
        return STAGES * (
            self.input + self.box * KC * self.size + (0 if self.held else self.filters)
        )

    @property
    def fits(self) -> bool:
        """Whether registers and shared memory hold it."""
        return self.sums <= SUMS[self.parts] and self.memory <= SHARED

    @property
    def stage(self) -> Stage:
        """What a stage takes at least. wgmma reads its right operand, the tiles, anew for every 64
        channels and product, the left one too unless it is in registers."""
        count = products(self.parts)
        macs = self.states * self.channels * self.tiles * KC * count
        right = macs / ROWS * HALF
        left = 0 if self.held else count * self.filters / self.parts
        box = self.box * KC * self.size
        numbers = self.states * self.tiles * KC
        return Stage(
            products=macs * (MODEL.gamma_wgmma.held if self.held and self.parts > 1 else 1),
            shared=self.input + right + self.filters + left + 2 * box,
            filters=self.filters / (2 if self.pair else 1),
            x=box,
            transforms=numbers
            * self.parts
            * (12 + 2 * (self.m + TAPS - 1))
            / 20,  # α adds a dimension
            boxes=1,
            held=self.held,
        )

    def seconds(self, problem: Problem) -> float:
        """What a whole call takes at least."""
        m, (height, width) = MODEL.gamma_wgmma, problem.output
        tiles = problem.batch * -(-height // self.m) * -(-width // self.m)
        blocks = -(-problem.out_channels // self.channels) * -(-tiles // self.tiles)
        steps = -(-problem.in_channels // KC)
        transformed = self.states * self.parts * HALF * problem.out_channels * problem.in_channels
        stored = self.m**2 * self.channels * self.tiles
        store = m.store + (m.cluster * self.split_k if self.split_k > 1 else 0)
        cycles = -(-steps // self.split_k) * self.stage.cycles(H100, MODEL, transformed)
        rounds = -(-blocks * self.split_k // H100.multiprocessors)
        computed = rounds * (cycles + stored * store) / H100.clock
        moved = self.size * (math.prod(problem.x_shape) + math.prod(problem.y_shape))
        main = overlapped(MODEL.overlap.stage, computed, copying(H100, moved))
        return of_call(H100, 1, main, transformed, self.parts, 0)

    def __str__(self) -> str:
        where = "registers" if self.held else "ring"
        split = f", {self.split_k} parts" if self.split_k > 1 else ""
        return (
            f"F({self.m}×{self.m},3×3) {self.channels}×{self.tiles}, {self.sums} sums a thread, "
            f"{self.memory >> 10} KB, filters in {'pairs, ' * self.pair}{where}{split}"
        )


def blocks(m: int, parts: int) -> Iterator[Fused]:
    """Every block that fits."""
    for channels, tiles, held, pair, split in product(
        (64, 128), range(8, 129, 8), (True, False), (False, True), SPLITS
    ):
        if held and pair:
            continue  # what goes to registers is not shared
        found = Fused(m, channels, tiles, parts, held, pair, split)
        if found.fits:
            yield found


def best(m: int, parts: int, problem: Problem) -> tuple[float, Fused] | None:
    """The least time, and the block that has it; None where registers hold none."""
    made = [(block.seconds(problem), block) for block in blocks(m, parts)]
    return min(made, key=lambda pair: pair[0]) if made else None


def layers() -> Iterator[tuple[str, Problem]]:
    """ResNet's layers at N = 1 and 32, VGG-E's at 1, 32 and 64, conv1.1 left out."""

    def layer(batch: int, channels: int, size: int, out_channels: int) -> Problem:
        shapes = (batch, size, size, channels), (out_channels, 3, 3, channels)
        return Problem.of(*shapes, padding=1)

    for batch in (1, 32):
        for number, (channels, size) in enumerate(RESNET.items(), 2):
            yield f"Conv{number} N={batch}", layer(batch, channels, size, channels)
    for batch in (1, 32, 64):
        for name, _, channels, size, out_channels in VGG_E[1:]:
            yield f"VGG-E {name} N={batch}", layer(batch, channels, size, out_channels)


def picked(problem: Problem, precision: str) -> tuple[float, str]:
    """The time that the planner's choice is said to take, and its name."""
    found = planner.plan(Request(problem, "forward", H100, None, PRECISIONS[precision]))
    return found.predicted, found.kernel


@dataclass(frozen=True)
class Compared:
    """A layer: what is picked, and the best fused block of each F(m×m, 3×3), beside it."""

    precision: str
    name: str
    problem: Problem
    today: float  # seconds that the pick is predicted to take
    kernel: str
    fused: tuple[tuple[float, Fused], ...]  # seconds, and the block

    @property
    def gains(self) -> list[float]:
        """How many times as fast as the pick, for each m."""
        return [self.today / seconds for seconds, _ in self.fused]

    @property
    def batch(self) -> int:
        """N."""
        return self.problem.batch

    def __str__(self) -> str:
        rates = [f"{2 * self.problem.macs / s / 1e12:.0f}" for s in (self.today, self.fused[0][0])]
        gains = ", ".join(f"{gain:.2f}" for gain in self.gains)
        return (
            f"{self.precision} {self.name}: {self.kernel} {1e6 * self.today:.1f} µs, {rates[0]} "
            f"TFLOPS; F(2×2,3×3) {1e6 * self.fused[0][0]:.1f} µs, {rates[1]}; over it {gains}"
        )


def compared(most: int = 4) -> Iterator[Compared]:
    """Every layer in both precisions; m is 2 to ``most``."""
    for precision, (name, problem) in product(PRECISIONS, layers()):
        found = (best(m, PARTS[precision], problem) for m in range(2, most + 1))
        made = tuple(pair for pair in found if pair)
        yield Compared(precision, name, problem, *picked(problem, precision), made)


def slower(precision: str, batch: int) -> float:
    """What kernels of Γ took over what the same model says of them, on an H100: the geometric mean
    of ResNet's layers (experiments/results/throughput.jsonl)."""
    ratios = [
        row["cold_us"][1] / row["predicted_us"]
        for row in stored("throughput")
        if row["list"] == ("resnet1" if batch == 1 else "resnet")
        and row.get("products") == precision
        and row["kernel"].startswith("Γ")
        and not row["kernel"].startswith("Γ1(")
        and "H100" in row["device"]
        and "cold_us" in row
    ]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def bounds(block: Fused) -> str:
    """A block, and the cycles that each part of a stage takes at least."""
    stage, m = block.stage, MODEL.gamma_wgmma
    cycles = {
        "Tensor Cores": stage.products / H100.matrix,
        "shared memory": m.shared * stage.shared / SHARED_LINE,
        "L2": (stage.filters + m.x * stage.x) / l2_bytes_a_cycle(),
        "transforms": m.transform * stage.transforms,
    }
    return f"{block}: " + ", ".join(f"{name} {each:.0f}" for name, each in cycles.items())


def main() -> None:
    """Print what bounds the largest blocks, a line a layer, and what it comes to."""
    for precision, m in product(PRECISIONS, (2, 3, 4)):
        print(f"{precision}, cycles a stage, {bounds(max(blocks(m, PARTS[precision]), key=sums))}")
    rows = list(compared())
    print(*rows, sep="\n")
    for precision, batch in product(PRECISIONS, (1, 32, 64)):
        gains = [r.gains[0] for r in rows if (r.precision, r.batch) == (precision, batch)]
        text = (
            f"{precision} N={batch}: F(2×2,3×3) over the pick {min(gains):.2f} to {max(gains):.2f}"
        )
        if batch < 64:
            text += f"; kernels of Γ take {slower(precision, batch):.2f} of the model's times"
        print(text)


def sums(block: Fused) -> tuple[int, bool]:
    """What orders blocks by their size."""
    return block.sums, block.held


if __name__ == "__main__":
    typer.run(main)
