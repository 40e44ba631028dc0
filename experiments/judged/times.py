"""Times of kernels on a GPU beside everybody's: ``python -m experiments.judged.times``.

Kernels that experiments.judged.on_gpu accepted, on the layers of a list, in turn with every
algorithm of cuDNN, PyTorch's convolutions and ours: cold and warm quartiles, effective TFLOPS and
their share of the ceiling, bytes of workspace. Rows of kind "time" replace those of the same layer
in experiments/results/judged_gpu.jsonl. A layer is not begun after the given seconds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.machines import stored
from experiments.judged.on_gpu import KERNELS, OUTPUT, Kernel
from winolab.cli import bench, environment
from winolab.gpu.machine import MachineError
from winolab.judge import speed
from winolab.judge.candidate import Candidate, Declined
from winolab.judge.claim import Claim
from winolab.judge.loading import load
from winolab.lines import rewrite

TIMED = "right,triton,winolab_direct"
SHOWN = 3  # of the fastest, of each layer


def loaded(kernel: Kernel) -> Candidate:
    """The function of a kernel of Python."""
    return load(kernel.where, arrays=kernel.library, device="cuda", serves=kernel.serves)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    who = " ".join(str(row.get(key, "")) for key in ("method", "kernel", "products", "layout"))
    return (
        f"{row['layer']:22} {row['tflops']:7.2f} TFLOPS, share {row['share']:.3f}, cold "
        f"{row['cold_us'][1]:.1f} us, warm {row['warm_us'][1]:.1f} us, "
        f"{row.get('held_bytes', row.get('workspace'))} B beside: {row['name']} {who}"
    )


def main(
    kernels: Annotated[str, typer.Option(help="Names, with commas, of on_gpu's.")] = TIMED,
    layers: Annotated[str, typer.Option(help="As of winolab bench.")] = "resnet",
    seconds: Annotated[float, typer.Option(help="Time after which no layer is begun.")] = 90,
    output: Annotated[Path, typer.Option(help="File of rows.")] = OUTPUT,
) -> None:
    """Time kernels on the GPU at hand."""
    end = time.monotonic() + seconds
    named = {kernel.name: kernel for kernel in KERNELS}
    asked = kernels.split(",")
    if unknown := set(asked) - named.keys():
        raise SystemExit(f"no kernel {', '.join(sorted(unknown))}")
    claims = {(named[name].algorithm, named[name].precision) for name in asked}
    if len(claims) > 1:
        raise SystemExit("the kernels claim different things; time those of one precision at once")
    claim = Claim(*claims.pop())
    try:
        machine = {**environment.provenance(), **bench.context()}
    except MachineError as error:
        raise SystemExit(str(error)) from None
    count = 0
    for layer_name, layer in [(str(layer), layer) for _, layer in bench.named(layers)]:
        if time.monotonic() > end:
            print(f"{layer_name}: left out: no time")
            continue
        candidates = {name: loaded(named[name]) for name in asked}
        try:
            found = speed.on_gpu([*candidates.values()], claim, layer.problem, layer_name)
        except Declined as error:
            print(f"{layer_name}: {error}")
            continue
        called = {candidate.name: name for name, candidate in candidates.items()}
        found = [{**machine, "name": called.get(row.get("kernel", ""), row["method"]), **row}
                 for row in found]  # fmt: skip
        others = [row for row in stored(output)
                  if (row.get("row"), row.get("layer")) != ("time", layer_name)]  # fmt: skip
        rewrite(output, [*others, *found])
        count += len(found)
        timed = sorted((row for row in found if "tflops" in row), key=lambda row: -row["tflops"])
        for place, row in enumerate(timed):
            if place < SHOWN or row["method"] == "judged":
                print(line(row), flush=True)
    print(f"{count} rows")


if __name__ == "__main__":
    typer.run(main)
