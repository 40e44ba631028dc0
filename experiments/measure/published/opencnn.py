"""On a GPU: openCNN's own code, built by nvcc, beside the fused kernel of ours, in one process.

``python -m experiments.measure.published.opencnn [--seconds S]`` times the builds of its Makefile
on the paper's layers and batches in turn with our fastest policies, L2 overwritten before a call,
the filter's transform included. Its rows of experiments/results/opencnn_authors.jsonl take the
place of their case's; a case that has them on this GPU does not run again. Its sources (github
UDC-GAC/openCNN, folder src) belong in build/opencnn/src and are not ours; ``--build`` makes the
libraries beside them, which needs nvcc and no GPU, and stops. nvcc fuses multiply-adds unless told
otherwise: where there is cuobjdump, a library whose machine code has no FFMA is refused.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.fused import beside
from experiments.measure.throughput import compile_all
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, unnamed
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families.fused2d.config import Config, narrow
from winolab.gpu.families.fused2d.plan import Fused2dPlan, plans
from winolab.lines import rewrite

RESULTS = ROOT / "experiments" / "results" / "opencnn_authors.jsonl"
FOLDER = ROOT / "build" / "opencnn"
LAYOUT, FILTERS = "CHWN", (3, 1, 2, 0)  # where its filter (c, r, s, k) has the axes of ours
ROUNDS, IMAGES = 15, 2
WRONG = 1e-5  # relative RMS; theirs was 3e-7 on an H100, and another memory order errs by 1.4
NOTE = (
    "the authors' code, built by nvcc -O3 with fused multiply-adds, beside ours in one process; "
    "median of calls with a cold L2, the filter's transform included"
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Build:
    """One of its builds: the kernels for a generation of GPUs, and its Makefile's OUT."""

    generation: str
    layout: str

    def __str__(self) -> str:
        return f"{self.generation}_{self.layout}"

    @property
    def path(self) -> Path:
        """Its library."""
        return FOLDER / f"{self}.so"

    def make(self, sources: Path) -> None:
        """Compile it for Hopper. Raises CalledProcessError with nvcc's complaint."""
        text = Path(__file__).with_suffix(".cu")
        defined = [f"-D{self.layout}", *(["-DTURING"] if self.generation == "turing" else [])]
        link = ["-shared", "-Xcompiler", "-fPIC", "-Xlinker", "-Bsymbolic"]
        command = ["nvcc", "-O3", "-arch=sm_90", *link, *defined, f"-I{sources}", "-o"]
        subprocess.run([*command, str(self.path), str(text)], check=True, capture_output=True)


BUILDS = (
    *(Build("ampere", out) for out in ("OPTSTS64", "OPTSTS64_CMP", "OPTLDS64", "BASE")),
    Build("turing", "OPTSTS64"),
)


def built(sources: Path) -> None:
    """Make the libraries that are not there, or that this system does not load."""
    missing = [build for build in BUILDS if not _loads(build)]
    if missing and not (sources / "config.hpp").exists():
        raise SystemExit(f"{sources} has no config.hpp: put openCNN's folder src there")
    with ThreadPoolExecutor(len(BUILDS)) as threads:
        list(threads.map(Build.make, missing, repeat(sources)))


def _loads(build: Build) -> bool:
    try:
        ctypes.CDLL(str(build.path))
    except OSError:
        return False
    return True


@cache
def ffma(build: Build) -> int | None:
    """Fused multiply-adds in its machine code; None without cuobjdump."""
    if not shutil.which("cuobjdump"):
        return None
    command = ["cuobjdump", "-sass", str(build.path)]
    return subprocess.run(command, check=True, capture_output=True).stdout.count(b"FFMA")


@cache
def forward(build: Build) -> Callable[..., int]:
    """Its convolution, with its tables copied; returns the CUDA error. Raises RuntimeError where
    they cannot be, or where its products are not fused."""
    if ffma(build) == 0:
        raise RuntimeError(f"{build.path} has no FFMA: it was compiled with --fmad=false")
    library = ctypes.CDLL(str(build.path))
    if error := library.opencnn_tables():
        raise RuntimeError(f"{build}: CUDA's error {error}")
    call = library.opencnn_forward
    call.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 4
    return call


def policies(case: beside.Case, device: Device) -> Iterator[Fused2dPlan]:
    """Our fastest in rows of fused2d.jsonl, and the paper's layout in its memory order."""
    chwn = next(c for c in beside.papers() if c.ahead and c.layout == "sts64")
    request = unnamed("forward", case.problem, "fp32", device)
    for config in (Config(ahead=True), narrow(), chwn):
        yield from plans(replace(request, algorithm=beside.ALGORITHM, precision="fp32",
                                 config=config))  # fmt: skip


def run(case: beside.Case) -> list[Row]:
    """The rows of a case, one a build."""
    cp, problem = driver.cupy(), case.problem
    arrays = Arrays("forward", problem, "fp32")
    arrays.fill(-1, 1)
    theirs = beside.Ordered(arrays, LAYOUT.lower())
    theirs.fill()
    w = cp.ascontiguousarray(theirs.w.transpose(FILTERS))
    transformed = cp.empty(16 * problem.in_channels * problem.out_channels, "float32")
    mine = {str(p.config): p for p in policies(case, driver.device(0))}
    orders = {p.config.order: beside.Ordered(arrays, p.config.order) for p in mine.values()}
    space = cp.empty(max(1, *(p.workspace for p in mine.values())), "uint8")
    size = (problem.batch, problem.in_channels, problem.input[0], problem.out_channels)
    at = [v.data.ptr for v in (theirs.x, w, theirs.y, transformed)]
    calls: dict[str, Callable[[], Any]] = {str(b): partial(forward(b), *at, *size) for b in BUILDS}
    calls |= {
        name: partial(beside.fused, p, arrays, orders[p.config.order], space.data.ptr)
        for name, p in mine.items()
    }
    images = [*range(IMAGES - 1), problem.batch - 1]
    x, filters = arrays.operands["NHWC"]
    exact = oracle.fp64("forward", replace(problem, batch=IMAGES), x[images], filters)
    errors = {}
    for name, call in calls.items():
        arrays.poison()
        if error := call():
            raise RuntimeError(f"{name}: CUDA's error {error}")
        y = orders[mine[name].config.order].result if name in mine else theirs.result
        errors[name] = oracle.relative_rms(y[images], exact)
        if not errors[name] <= WRONG:
            raise RuntimeError(f"{name} errs by {errors[name]:.1e} on {case.layer}")
    times = interleave(calls, rounds=ROUNDS, flush=FLUSH, warmup=1)
    best = min(mine, key=lambda name: times[name].median)
    beside_ours = {
        "beside_ours_plan": best,
        "beside_ours_tflops": beside.speed(problem, times[best])["tflops"],
        "beside_ours_rms_u11": errors[best],
    }
    common = {**beside.layer_of(case), "direction": "forward", "precision": "fp32",
              "method": "openCNN", "layout": LAYOUT}  # fmt: skip
    return [
        {**common, "list": "authors", "variant": str(b),
         "ms": round(1e3 * times[str(b)].median, 5), **beside.speed(problem, times[str(b)]),
         "relative_rms_u11": errors[str(b)], "ffma": ffma(b), **beside_ours, "note": NOTE}
        for b in BUILDS
    ]  # fmt: skip


def told(case: beside.Case, rows: list[Row]) -> str:
    """A line on a case."""
    fastest = max(rows, key=lambda row: row["tflops"])
    over = fastest["beside_ours_tflops"] / fastest["tflops"]
    builds = ", ".join(f"{row['variant']} {row['tflops']:.1f}" for row in rows)
    return (
        f"{case.layer} N={case.problem.batch}: ours {fastest['beside_ours_tflops']:.1f} TFLOPS, "
        f"{over:.3f} times its fastest build; {builds}"
    )


def left(rows: list[Row], device: str) -> list[beside.Case]:
    """Cases that lack a build's row of this kind on that GPU; the largest batch of all first."""
    there = {(row["variant"], row["layer"], row["batch"]) for row in rows
             if (row["device"], row["note"]) == (device, NOTE)}  # fmt: skip
    every = sorted(beside.cases(["opencnn"]), key=lambda case: -case.problem.batch)
    whole = {(layer, batch) for _, layer, batch in there
             if all((str(b), layer, batch) in there for b in BUILDS)}  # fmt: skip
    return [case for case in every if (case.layer, case.problem.batch) not in whole]


def main(
    sources: Annotated[Path, typer.Option(help="Its folder src.")] = FOLDER / "src",
    build: Annotated[bool, typer.Option("--build", help="Make the libraries, and stop.")] = False,
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 120,
    output: Annotated[Path, typer.Option(help="File of the rows.")] = RESULTS,
) -> None:
    """Measure what the file lacks."""
    end = time.monotonic() + seconds
    built(sources)
    print(", ".join(f"{b}: {ffma(b)} FFMA" for b in BUILDS), flush=True)
    if build:
        return
    bench.ready()
    device = driver.device(0)
    cases = left(stored(output), device.name)
    print(f"{compile_all(p for c in cases for p in policies(c, device))} kernels", flush=True)
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    ratios = []
    for case in cases:
        if time.monotonic() > end:
            print(f"no time for {case.layer} N={case.problem.batch}", flush=True)
            continue
        rows = [plain({**row, **machine}) for row in run(case)]
        free()
        place = case.layer, case.problem.batch
        kept = [row for row in stored(output) if (row["layer"], row["batch"]) != place]
        rewrite(output, kept + rows)
        print(told(case, rows), flush=True)
        ratios.append(min(row["beside_ours_tflops"] / row["tflops"] for row in rows))
    if ratios:
        met = sum(ratio >= 1.5 for ratio in ratios)
        print(f"{min(ratios):.3f} to {max(ratios):.3f}, at least 1.5 in {met} of {len(ratios)}")


if __name__ == "__main__":
    typer.run(main)
