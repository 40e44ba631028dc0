"""On a GPU: the main loop of a fused F(2×2,3×3) on wgmma that is not built, beside today's picks.

``python -m experiments.measure.fused.wgmma_loop [--seconds S]`` replaces the rows of
experiments/results/fused2d_wgmma_loop.jsonl. wgmma_loop.cuh multiplies, and transforms what lies in
shared memory, in as many stages as a layer has; nothing is loaded from elsewhere, nothing is
written, no filter is transformed. So ``gain``, the time of the planner's choice (L2 cold, filters'
transform included) over the loop's, is more than the whole kernel's could be: below 1, no such
kernel wins there. Blocks are those of ``on_paper``: 64 channels × 32 tiles of split products, × 48
of 16 bits; sums in as many parts as take the fewest stages. Results are wrong; no plan has them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product, repeat
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.measure.fused.on_paper import PRECISIONS, ROWS, SPLITS, layers
from experiments.measure.fused.replaced import Row, replaced
from experiments.measure.throughput import compile_all, compile_sources
from winolab.algorithm import Problem
from winolab.bench.contenders import Arrays, bound, unnamed
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.gamma.config import KC, PARTS
from winolab.gpu.params import INT, POINTER, Layout
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import Plan
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.call import kernels_of
from winolab.ref.algebra.transforms import transforms
from winolab.spread import pool

RESULTS = ROOT / "experiments" / "results" / "fused2d_wgmma_loop.jsonl"
PARAMS = Layout(("out", POINTER), ("seed turns", INT))
KERNEL, THREADS, STAGES = "fused_wgmma_loop", 384, 4
LAUNCHED = 65536 // THREADS // 8 * 8  # registers of a thread that the launch allocates
M, TAPS = 2, 3
ROUNDS = 7
SEED = 0x3C003C00  # ones, as wgmma reads them


@dataclass(frozen=True)
class Loop:
    """One kernel: a precision's block, with what transforms tiles or without."""

    precision: str
    transforms: bool

    @property
    def parts(self) -> int:
        """Parts of 16 bits of a number."""
        return PARTS[self.precision]

    @property
    def tiles(self) -> int:
        """Tiles of a block: what registers hold (note 053)."""
        return {1: 48, 2: 32}[self.parts]

    @property
    def shared(self) -> int:
        """Bytes of shared memory: V, the box of pixels, barriers."""
        v = STAGES * (M + TAPS - 1) ** 2 * self.parts * self.tiles * KC * 2
        box = (2 * self.tiles // 8 + 2) * 18 * (KC + 4) * 2 * self.parts
        return v + -(-box // 16) * 16 + 16 * STAGES + 128

    def source(self) -> str:
        """The translation unit."""
        consumers = {1: 224, 2: 192}[self.parts]
        shared = unit(
            f"the loop of F(2×2,3×3) on wgmma, {self.precision}",
            {
                "ALPHA": M + TAPS - 1,
                "TILES": self.tiles,
                "PARTS": self.parts,
                "STAGES": STAGES,
                "TRANSFORMS": int(self.transforms),
                "SHARED": self.shared,
                "CONSUMER_REGISTERS": consumers,
                "PRODUCER_REGISTERS": 3 * LAUNCHED - 2 * consumers,
            },
            {"transform_input": transforms(M, TAPS, "best").programs.BT},
            ("either", "mma", "pipe", "pipeline"),
        )
        return shared + "\n\n" + Path(__file__).with_suffix(".cuh").read_text()

    def work(self, problem: Problem, multiprocessors: int) -> tuple[int, int]:
        """Blocks, and stages of each, of a layer; in the parts of the sum that take the fewest."""
        height, width = problem.output
        tiles = problem.batch * -(-height // M) * -(-width // M)
        blocks = -(-problem.out_channels // ROWS) * -(-tiles // self.tiles)
        steps = -(-problem.in_channels // KC)
        stages = {
            split: -(-blocks * split // multiprocessors) * -(-steps // split) for split in SPLITS
        }
        split = min(stages, key=lambda split: (stages[split], split))
        return min(blocks * split, multiprocessors), stages[split]


LOOPS = tuple(
    Loop(precision, transformed) for precision, transformed in product(PRECISIONS, (False, True))
)


def picked(case: tuple[str, Problem], precision: str, device: Device) -> Plan:
    """What the planner takes for a layer."""
    return planner.plan(unnamed("forward", case[1], PRECISIONS[precision], device))


def run(case: tuple[str, Problem, str, Plan], _: Row) -> Iterator[Row]:
    """Rows of a layer, its name first: each loop beside what the planner picks of a precision."""
    name, problem, precision, pick = case
    group, device = PRECISIONS[precision], driver.device(0)
    arrays = Arrays("forward", problem, group)
    arrays.fill(-1, 1)
    memory = driver.cupy().empty(max(1, pick.workspace), "uint8")
    kernels = partial(kernels_of, pick, 0)
    calls: dict[str, Callable[[], Any]] = {
        "pick": partial(bound(pick, kernels, 0), arrays, memory.data.ptr)
    }
    mine = {loop.transforms: loop for loop in LOOPS if loop.precision == precision}
    work = {}
    for transformed, loop in mine.items():
        blocks, stages = work[transformed] = loop.work(problem, device.multiprocessors)
        kernel = loader.load(loop.source(), KERNEL, {KERNEL: loop.shared}, 0)[KERNEL]
        params = PARAMS.pack(0, SEED, stages)
        calls[str(transformed)] = partial(kernel, (blocks, 1, 1), THREADS, params)
    times = interleave(calls, rounds=ROUNDS, flush=FLUSH, warmup=1)
    took_pick = times["pick"].median
    for transformed, loop in mine.items():
        took = times[str(transformed)].median
        yield {
            "layer": name,
            "input": "x".join(map(str, problem.x_shape)),
            "filter": "x".join(map(str, problem.w_shape)),
            "direction": "forward",
            "precision": precision,
            "results": "wrong",
            "block": f"{ROWS}x{loop.tiles}x{KC}",
            "transforms": transformed,
            "blocks": work[transformed][0],
            "stages": work[transformed][1],
            "loop_us": round(1e6 * took, 2),
            "loop_tflops": round(2 * problem.macs / took / 1e12, 2),
            "pick": f"{pick.kernel} {pick.precision} {pick.config}",
            "pick_us": round(1e6 * took_pick, 2),
            "pick_tflops": round(2 * problem.macs / took_pick / 1e12, 2),
            "gain": round(took_pick / took, 3),
        }


def told(rows: list[Row]) -> str:
    """Times of the planner's choice and of the loops."""
    loops = ", ".join(f"{'with' if r['transforms'] else 'no'} transforms {r['loop_us']} µs"
                      for r in rows)  # fmt: skip
    return f"pick {rows[0]['pick_us']} µs, {loops}"


def verdict(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence a precision: where the loop that transforms would win, and by how much at most."""
    for precision in PRECISIONS:
        mine = [r for r in rows if r["precision"] == precision and r["transforms"]]
        if not mine:
            continue
        wins = [f"{r['layer']} {r['gain']:.2f}" for r in mine if r["gain"] > 1]
        mean = math.exp(sum(math.log(r["gain"]) for r in mine) / len(mine))
        yield (
            f"{precision}: the loop over the pick {min(r['gain'] for r in mine):.2f} to "
            f"{max(r['gain'] for r in mine):.2f}, mean {mean:.2f}; could win on {len(wins)} of "
            f"{len(mine)} layers{': ' * bool(wins)}{', '.join(wins)}"
        )


def main(
    output: Annotated[Path, typer.Option(help="File of the rows.")] = RESULTS,
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 120,
) -> None:
    """Measure all layers, and replace the file."""
    bench.ready()
    end = time.monotonic() + seconds
    cases = list(product(layers(), PRECISIONS))
    with pool(cores()) as processes:
        picks = list(processes.map(picked, *zip(*cases, strict=True), repeat(driver.device(0))))
    count = compile_all(picks) + compile_sources({loop.source(): str(loop) for loop in LOOPS})
    print(f"{count} kernels", flush=True)
    asked = [(*layer, precision, pick)
             for (layer, precision), pick in zip(cases, picks, strict=True)]  # fmt: skip
    found = replaced(output, end, asked, run, lambda case: f"{case[2]} {case[0]}", told)
    print(*verdict(found), sep="\n")


if __name__ == "__main__":
    typer.run(main)
