"""How many kernels networks need, and what compiling them takes.

``python -m experiments.measure.compiling [--compile] [--networks A,B]`` plans every layer of the
networks in networks.json, in three directions, for an H100 that need not be there, and counts the
distinct translation units that calls of channels-last arrays load. With ``--compile`` NVRTC
compiles them on all cores, into a cache of its own, and a row has the seconds of each by quantile,
how many took over two, and the seconds that all took together. Rows replace those of the same
network and precision in experiments/results/compiling.jsonl.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from winolab.bench.networks import layers_of, networks
from winolab.cli.environment import provenance
from winolab.device import datasheet
from winolab.gpu import warm
from winolab.gpu.planner.request import DIRECTIONS
from winolab.gpu.runtime.cache.source import Source
from winolab.options import ConvOptions

RESULTS = ROOT / "experiments" / "results" / "compiling.jsonl"
PRECISIONS = ("fp32", "fp16", "bf16")
Units = dict[tuple[Source, str], warm.Unit]


def units(network: str, precision: str, device: str) -> tuple[int, Units]:
    """How many calls a network's layers make, each once, and the distinct units that they load."""
    gpu, options = datasheet(device), ConvOptions(precision=precision).checked()
    found: Units = {}
    calls = 0
    for layer, _ in layers_of(network):
        for direction in DIRECTIONS:
            calls += 1
            for unit in warm.calls_units(direction, layer.problem, gpu, options):
                found[unit.source, unit.arch] = unit
    return calls, found


def compiled(found: Units) -> dict[str, Any]:
    """What compiling them takes, in an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("WINOLAB_CACHE")
        os.environ["WINOLAB_CACHE"] = folder
        try:
            done = warm.compile_all(found.values())
        finally:
            del os.environ["WINOLAB_CACHE"]
            if before is not None:
                os.environ["WINOLAB_CACHE"] = before
    seconds = sorted(each for _, each in done.compiled)
    return {
        "seconds": round(done.seconds, 2),
        "cores": os.cpu_count(),
        "each_seconds": {
            "median": round(statistics.median(seconds), 3),
            "longest": round(seconds[-1], 3),
        },
        "over_2_seconds": sum(each > warm.SLOW for each in seconds),
        "slowest": done.compiled[0][0].title,
    }


def main(
    only: Annotated[str, typer.Option("--networks", help="With commas.")] = "",
    compile: Annotated[bool, typer.Option("--compile", help="Compile them, too.")] = False,
    device: Annotated[str, typer.Option(help="The GPU that is meant.")] = "h100",
    output: Annotated[Path, typer.Option(help="File of rows.")] = RESULTS,
) -> None:
    """Count, and compile."""
    names = only.split(",") if only else [*networks(), "all"]
    kept = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    for precision in PRECISIONS:
        total: Units = {}
        calls = 0
        for name in names:
            if name == "all":
                count, found = calls, total
            else:
                count, found = units(name, precision, device)
                calls, total = calls + count, total | found
            row = {
                "network": name,
                "precision": precision,
                "for": device,
                "calls": count,
                "kernels": len(found),
                **(compiled(found) if compile else {}),
            }
            print(json.dumps(row), flush=True)
            row |= provenance()
            same = ("network", "precision", "for")
            kept = [old for old in kept if any(old[k] != row[k] for k in same)] + [row]
            output.write_text("".join(json.dumps(each) + "\n" for each in kept))


if __name__ == "__main__":
    typer.run(main)
