"""How many kernels networks need, and what compiling them takes.

``python -m experiments.measure.compiling [--compile] [--networks A,B]`` plans every layer of the
networks in networks.json, in three directions, for an H100 that need not be there, and counts the
distinct translation units that calls of channels-last arrays load. With ``--compile`` NVRTC
compiles each once, into no cache, ``--threads`` at a time, and a row has the seconds of each: the
median and the most, of all and by family, how many took over two, which took longest. Seconds are
what the compiling thread works on a processor, whatever else runs there; threads that share a core
make each other slower all the same. Rows replace those of the
same network and precision in experiments/results/compiling.jsonl.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from winolab.bench.networks import layers_of, networks
from winolab.cli.environment import provenance
from winolab.device import datasheet
from winolab.gpu import warm
from winolab.gpu.planner.request import DIRECTIONS
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache.source import Source
from winolab.options import ConvOptions

RESULTS = ROOT / "experiments" / "results" / "compiling.jsonl"
PRECISIONS = ("fp32", "fp16", "bf16")
Key = tuple[Source, str]
Units = dict[Key, warm.Unit]
# What a unit computes beside products, behind its title's last comma.
PARTS = ("fallback", "filter")


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


def compiled(found: Units, seconds: dict[Key, float], threads: int = 1) -> dict[str, Any]:
    """What compiling them takes; ``seconds`` of each are looked up, or compiled and added."""
    with ThreadPoolExecutor(threads) as pool:
        left = [key for key in found if key not in seconds]
        seconds |= zip(left, pool.map(worked, (found[key] for key in left)), strict=True)
    mine = {key: seconds[key] for key in found}
    families: dict[str, list[float]] = {}
    for key, each in mine.items():
        families.setdefault(family(found[key].title), []).append(each)
    return {
        "cpu_seconds": round(sum(mine.values()), 2),
        "each_seconds": spread(mine.values()),
        "by_family": {name: spread(each) for name, each in sorted(families.items())},
        "over_2_seconds": sum(each > warm.SLOW for each in mine.values()),
        "slowest": found[max(mine, key=mine.__getitem__)].title,
        "threads": threads,
        "nvrtc": ".".join(map(str, nvrtc.version())),
    }


def worked(unit: warm.Unit) -> float:
    """Seconds of a processor that NVRTC takes for a unit, in this thread."""
    text = unit.source.printed()
    started = time.thread_time()
    nvrtc.compile_cubin(text, unit.arch)
    return time.thread_time() - started


def spread(seconds: Iterable[float]) -> dict[str, float]:
    """How many units there are, their median, and the most that one took."""
    each = sorted(seconds)
    found = {"median": statistics.median(each), "longest": each[-1]}
    return {"units": len(each), **{name: round(value, 3) for name, value in found.items()}}


def family(title: str) -> str:
    """What kind of unit a title is of, without its tile and configuration."""
    if title.startswith("a copy"):
        return "a copy"
    words = title.partition(" fp")[0].partition(" bf")[0]
    kind = words.partition("(")[0].rstrip("0123456789")
    columns = " by columns" * (" columns," in title)
    part = title.rpartition(", ")[2]
    return kind + columns + f", {part}" * (part in PARTS)


def main(
    only: Annotated[str, typer.Option("--networks", help="With commas.")] = "",
    compile: Annotated[bool, typer.Option("--compile", help="Compile them, too.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="That compile at a time.")] = 1,
    device: Annotated[str, typer.Option(help="The GPU that is meant.")] = "h100",
    output: Annotated[Path, typer.Option(help="File of rows.")] = RESULTS,
) -> None:
    """Count, and compile."""
    seconds: dict[Key, float] = {}
    names = only.split(",") if only else [*networks(), "all"]
    kept = stored(output)
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
                **(compiled(found, seconds, threads) if compile else {}),
            }
            print(json.dumps(row), flush=True)
            row |= provenance()
            same = ("network", "precision", "for")
            kept = [old for old in kept if any(old[k] != row[k] for k in same)] + [row]
            output.write_text("".join(json.dumps(each) + "\n" for each in kept))


if __name__ == "__main__":
    typer.run(main)
