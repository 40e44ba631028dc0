"""Times of kernels on a GPU beside everybody's: ``python -m experiments.judged.times``.

Each kernel that experiments.judged.on_gpu accepted, on the layers of a list, in turn with every
algorithm of cuDNN, PyTorch's convolutions and ours: cold and warm quartiles, effective TFLOPS and
their share of the ceiling, bytes of workspace. Rows of kind "time" replace those of the same kernel
and layer in experiments/results/judged_gpu.jsonl. A layer is not begun after the given seconds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.judged.on_gpu import KERNELS, OUTPUT, Kernel
from experiments.measure.throughput import stored
from winolab.cli import bench, environment
from winolab.gpu.machine import MachineError
from winolab.judge import speed
from winolab.judge.candidate import Candidate, Declined
from winolab.judge.claim import Claim
from winolab.judge.loading import load
from winolab.lines import rewrite

TIMED = "right,triton,winolab_direct"


def loaded(kernel: Kernel) -> Candidate:
    """The function of a kernel of Python."""
    return load(kernel.where, arrays=kernel.library, device="cuda", serves=kernel.serves)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    who = " ".join(str(row.get(key, "")) for key in ("method", "kernel", "products", "layout"))
    return (
        f"{row['name']:16} {row['layer']:22} {row['tflops']:7.2f} TFLOPS {row['share']:6.3f} cold "
        f"{row['cold_us'][1]:9.1f} us warm {row['warm_us'][1]:9.1f} us {who}"
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
    try:
        machine = {**environment.provenance(), **bench.context()}
    except MachineError as error:
        raise SystemExit(str(error)) from None
    count = 0
    for layer_name, layer in [(str(layer), layer) for _, layer in bench.named(layers)]:
        for name in asked:
            if time.monotonic() > end:
                print(f"{name} {layer_name}: left out: no time")
                continue
            kernel = named[name]
            claim = Claim(kernel.algorithm, kernel.precision)
            try:
                found = speed.timed(loaded(kernel), claim, layer.problem, layer_name)
            except Declined as error:
                print(f"{name} {layer_name}: {error}")
                continue
            found = [{**machine, "name": name, **row} for row in found]
            others = [row for row in stored(output)
                      if (row.get("name"), row.get("layer")) != (name, layer_name)]  # fmt: skip
            rewrite(output, [*others, *found])
            count += len(found)
            for row in sorted((r for r in found if "tflops" in r), key=lambda r: -r["tflops"])[:3]:
                print(line(row), flush=True)
            for row in found:
                if row["method"] == "judged":
                    print(line(row), f"{row['held_bytes']} B beside", flush=True)
    print(f"{count} rows")


if __name__ == "__main__":
    typer.run(main)
