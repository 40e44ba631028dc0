"""MMA-Sim itself as the oracle of simulated Tensor Cores, by architecture.

``python -m experiments.arithmetic.mma_sim CHECKOUT`` runs the simulator of Xie et al. (arXiv
2511.10909, github.com/microsoft/MMA-Sim; needs torch) from a checkout beside this one, on the
random and adversarial products of experiments.arithmetic.tensor_cores, ``--sums`` an architecture
and format, each a chain of two instructions from an accumulator. It adds a row of each to
experiments/results/mma_sim.jsonl: how many sums have our bits (any NaN is NaN), by kind, and how
many of those that differ have an accumulator of 0 before a step. MMA-Sim gives 0 an exponent of
−126, also as a factor, and an H200 none (docs/notes/045). ``version`` is the checkout's commit.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.arithmetic.tensor_cores import DEPTH, KINDS, STEPS, drawn
from experiments.harness.facts import ROOT
from winolab.lines import Lines
from winolab.ref.arithmetic.accumulate import Accumulation, multiply_accumulate
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.tensor_cores import TENSOR_CORES

RESULTS = ROOT / "experiments" / "results" / "mma_sim.jsonl"
# Our architectures as MMA-Sim names them.
NAMES = {"ampere": "Ampere", "ada": "Ada Lovelace", "hopper": "Hopper", "blackwell": "Blackwell"}
TYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}
ROWS, COLUMNS = 16, 8  # of mma.sync
Instruction = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def loaded(checkout: Path) -> Any:
    """MMA-Sim's simulator of PTX. Raises ValueError where the folder has none."""
    if not (checkout / "mmasim").is_dir():
        raise ValueError(f"{checkout} has no mmasim; clone github.com/microsoft/MMA-Sim there")
    sys.path.insert(0, str(checkout))
    return importlib.import_module("mmasim.simulator.nv_ptx")


def instruction(simulator: Any, architecture: str, precision: str) -> Instruction:
    """mma.sync of the widest k as a function of NumPy's arrays, with an FP32 accumulator."""
    torch = importlib.import_module("torch")
    kind = TYPES[precision]
    qualifier = f"m16n8k{DEPTH[precision]}.f32.{kind}.{kind}.f32"
    run = simulator.mma(NAMES[architecture], qualifier)

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        types = (run.a_type, run.b_type, run.c_type)
        given = (torch.from_numpy(v).to(t) for v, t in zip((a, b, c), types, strict=True))
        return run(*given).numpy()

    return call


def compared(call: Instruction, architecture: str, precision: str, sums: int) -> dict[str, int]:
    """How many sums have our bits, of all and by kind, and how many others begin at 0."""
    order: Accumulation = TENSOR_CORES[architecture].accumulation(precision)
    lowest, k = 2.0 ** FORMATS[precision].emin, DEPTH[precision]
    count = -(-sums // (len(KINDS) * 64 * COLUMNS))  # instances of 64 rows, a kind
    found = {"sums": 0, "equal": 0, "differ_from_0": 0}
    for kind in KINDS:
        a, b, c = drawn(precision, kind, count)
        theirs, ours, begun = c.astype(np.float32), c, np.zeros(c.shape, bool)
        for step in range(STEPS):
            part = slice(step * k, step * k + k)
            x, y = (v.astype(np.float32) for v in (a[..., part], b[:, part]))
            theirs = np.stack(
                [
                    np.concatenate([call(x[i, r : r + ROWS], y[i], theirs[i, r : r + ROWS])
                                    for r in range(0, 64, ROWS)])
                    for i in range(count)
                ]
            )  # fmt: skip
            for first in range(part.start, part.stop, order.block):
                some = slice(first, first + order.block)
                begun |= ours == 0
                ours = multiply_accumulate(
                    a[..., some], b[:, some], ours, order, FORMATS["fp32"], lowest
                )
        with np.errstate(all="ignore"):
            mine = ours.astype(np.float32)
        same = mine.view(np.uint32) == theirs.view(np.uint32)
        same |= (np.isnan(mine) & np.isnan(theirs)) | ((mine == 0) & (theirs == 0))
        found["sums"] += same.size
        found["equal"] += int(same.sum())
        found["differ_from_0"] += int((~same & begun).sum())
        found[kind] = int(same.sum())
    return found


def main(
    checkout: Annotated[Path, typer.Argument(help="A clone of MMA-Sim.")],
    sums: Annotated[int, typer.Option(help="Of each architecture and format, at least.")] = 100_000,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Compare, print and keep."""
    simulator = loaded(checkout)
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with Lines(output) as file:
        for architecture in NAMES:
            for precision in DEPTH:
                call = instruction(simulator, architecture, precision)
                row = {
                    "architecture": architecture,
                    "precision": precision,
                    "model": str(TENSOR_CORES[architecture].accumulation(precision)),
                    **compared(call, architecture, precision, sums),
                    "version": version,
                }
                file.append(row)
                print(*row.values(), flush=True)


if __name__ == "__main__":
    typer.run(main)
