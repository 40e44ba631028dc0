"""``winolab judge`` on a GPU, of right kernels and planted faults.

``python -m experiments.judged.on_gpu`` prints a line a kernel.
A row a kernel: what it claims, the verdict that is expected and the one found, which checks refused
it. Rows replace experiments/results/judged_gpu.jsonl. Rows of times (experiments.judged.times)
stay. With ``--sources`` those of others are judged, too (experiments.judged.others). Each kernel is
judged in a process of its own, some at once, and has its seconds. Exit code 1 if a right one is
refused, a fault accepted or refused for something else, or one could not be judged. Of a library
that picks among its kernels, and of others' code, nobody knows before: its verdict is shown, and
either is well.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.machines import stored
from experiments.harness.tables import RESULTS
from experiments.judged.kernels_gpu.sources import SIGNATURE, source
from experiments.judged.others import sources
from winolab.cli import bench, environment
from winolab.gpu import driver
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import nvrtc
from winolab.judge.apart import judge_apart
from winolab.judge.claim import Claim
from winolab.lines import rewrite

Row = dict[str, Any]
OUTPUT = RESULTS / "judged_gpu.jsonl"
FOLDER = "experiments/judged/kernels_gpu"
LANES = max(1, min(6, environment.cores() // 2))  # kernels judged at once
COUNT = 8  # random problems of each
MORE = 15  # seconds that a process may take beyond its kernel's: it is started, the last trial ends
LEAST = 5  # seconds under which no kernel is begun
# Checks that say that a kernel did not run, rather than what is wrong with its results.
LOST = ("crash", "hang", "declined")


@dataclass(frozen=True)
class Kernel:
    """A kernel to judge: what it claims, whose arrays it takes, whether it is right (None: nobody
    knows before), and by which check a fault shows, where no race decides."""

    name: str
    where: str
    library: str
    right: bool | None = False
    check: str = ""
    precision: str = "fp32"
    algorithm: str = "direct"
    serves: str = ""
    seconds: float = 15

    @property
    def expected(self) -> str:
        """The verdict."""
        if self.right is None:
            return "either"
        return "accepted" if self.right else "refused"


def _raw(name: str, **more: Any) -> Kernel:
    return Kernel(name, f"{FOLDER}/with_cupy.py:{name}", "cupy", **more)


def _stranger(named: str, **more: Any) -> Kernel:
    file, _, name = named.partition(":")
    library = "torch" if file == "triton" else "cupy"
    where = f"{FOLDER}/stranger_{file}.py:{name}"
    more = {"serves": "dilation=1 groups=1 symmetric", "seconds": 20.0, **more}
    return Kernel(f"stranger_{file}_{name}", where, library, **more)


KERNELS = (
    _raw("right", right=True),
    _raw("unwritten_tile", check="unwritten"),
    _raw("off_by_one_pad", check="values"),
    _raw("race"),
    _raw("tf32", check="values"),
    _raw("swallowed_nan", check="nan"),
    _raw("wrong_stream"),
    _raw("reads_outside", check="outside"),
    _raw("stale_workspace"),
    _raw("transposed_filter", check="values"),
    _raw("overflow", precision="fp16"),
    # of 256 channels cuDNN picked Winograd's algorithm, which passes infinity on as NaN
    Kernel("torch_cudnn", f"{FOLDER}/cudnn.py:conv", "torch", right=None),
    Kernel("cubin", "direct.cubin", "cupy", right=True),
    Kernel("triton", f"{FOLDER}/with_triton.py:conv", "torch", right=True, seconds=20),
    Kernel(
        "winolab_direct", f"{FOLDER}/ours.py:direct", "cupy", right=True, seconds=25,
        serves="filter=3 stride=1 padding=1 dilation=1 groups=1 channels=8n out_channels=8n",
    ),
    Kernel("torch_native", f"{FOLDER}/native.py:conv", "torch", right=True),
    Kernel("torch_tf32", "torch.nn.functional:conv2d", "torch"),  # its default
    _raw("right_half", right=True, precision="fp16"),
    _raw("missing_barrier"),
    # the second stranger's
    _stranger("cupy:right", right=True),
    _stranger("cupy:one_turn", check="unwritten"),
    _stranger("cupy:one_scratch", check="threads"),
    _stranger("cupy:baked_in", check="values"),
    _stranger("triton:right", right=True),
    _stranger("triton:unmasked"),
    _stranger("triton:halves_when_long", check="values"),
)  # fmt: skip


def _other(name: str, where: str = "", **more: Any) -> Kernel:
    return Kernel(name, where or f"others:{name}", more.pop("library", "cupy"), None, **more)


# What others wrote, built from sources in a folder: nobody knows before what is right.
OTHERS = (
    _other("implgemm_direct", seconds=30),
    _other("implgemm_tiled", seconds=30),
    _other("implgemm_buffered", seconds=30),
    _other("implgemm_cute", seconds=50),
    _other(
        "attorch", "experiments/judged/others/attorch.py:conv", library="torch", precision="tf32",
        serves="dilation=1 symmetric", seconds=50,
    ),
)  # fmt: skip


def judged(kernel: Kernel, seconds: float, built: Path) -> Row:
    """The row of a kernel that is judged for so long; ``built``: a folder for what is compiled."""
    started = time.monotonic()
    claim = Claim(kernel.algorithm, kernel.precision)
    loaded: Row = {"serves": kernel.serves}
    where = kernel.where
    row: Row = {
        "name": kernel.name, "library": kernel.library, "algorithm": kernel.algorithm,
        "precision": kernel.precision, "direction": claim.direction, "expected": kernel.expected,
        "by": kernel.check,
    }  # fmt: skip

    def told(number: int) -> None:
        if time.monotonic() > started + seconds + MORE:
            raise TimeoutError(f"trial {number} began {MORE} s too late")

    try:
        if where.endswith(".cubin"):
            where = str(compiled(built / where))
        elif where.startswith("others:"):
            where = str(sources.built(kernel.name, Path(os.environ[sources.FOLDER]), built))
        else:
            loaded |= {"arrays": kernel.library, "device": "cuda"}
        found, _ = judge_apart(
            where, claim, loaded,
            {"count": COUNT, "first": kernel.right is False, "seconds": 0.3, "within": seconds},
            limit=seconds + MORE, told=told,
        )  # fmt: skip
        checks = [fault.finding.check for fault in found.faults]
        row |= {
            "found": "accepted" if found else "refused",
            "checks": checks,
            "said": [str(fault) for fault in found.faults] or [found.verdict],
            "trials": len(found.rows),
            "served": found.served,
            "left": found.left,
        }
    except Exception as error:  # of one kernel, which ends no other
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        row |= {"found": "not judged", "checks": [], "said": [said]}
    return {**row, "took_s": round(time.monotonic() - started, 1)}


def compiled(path: Path) -> Path:
    """A .cubin of direct.cu for the GPU at hand, with its signature beside it."""
    arch = nvrtc.architecture(driver.device(0).compute_capability)
    path.write_bytes(nvrtc.compile_cubin(source(), arch).cubin)
    path.with_suffix(".toml").write_text(SIGNATURE)
    return path


def well(row: Row) -> bool:
    """Whether a verdict is an expected one, of a fault by what its results are."""
    if row["found"] == "accepted":
        return row["expected"] != "refused"
    if row["found"] != "refused" or row["expected"] == "accepted":
        return False
    if row["by"]:
        return row["by"] in row["checks"]
    return any(check not in LOST for check in row["checks"])


def rows(kernels: Sequence[Kernel], seconds: float) -> Iterator[Row]:
    """The row of each, as they end; those that no time is left for have none."""
    end = time.monotonic() + seconds

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(LANES) as pool:

        def one(kernel: Kernel) -> Row | None:
            left = min(kernel.seconds, end - time.monotonic())
            return judged(kernel, left, Path(folder)) if left >= LEAST else None

        longest = sorted(kernels, key=lambda kernel: -kernel.seconds)
        for future in as_completed([pool.submit(one, kernel) for kernel in longest]):
            if (row := future.result()) is not None:
                yield row


def line(row: Row) -> str:
    """A row of the table."""
    state = "" if well(row) else "  WRONG"
    checks = ", ".join(row["checks"])
    said = row["said"][0][:200] if not well(row) or row["checks"] else ""
    return (
        f"{row['name']:18} {row['precision']:5} expected {row['expected']:8} found "
        f"{row['found']:10} {row['took_s']:5.1f} s  {checks:10} {said}{state}"
    )


def main(
    seconds: Annotated[float, typer.Option(help="Time in all; later kernels are left out.")] = 90,
    only: Annotated[str, typer.Option(help="Kernels, with commas; all.")] = "",
    output: Annotated[Path, typer.Option(help="File of rows.")] = OUTPUT,
    folder: Annotated[
        Path | None, typer.Option("--sources", help="Where kernels of others lie: judge them, too.")
    ] = None,
) -> None:
    """Judge right kernels and planted faults on the GPU at hand."""
    names = [name for name in only.split(",") if name]
    every = (*KERNELS, *OTHERS)
    offered = every if folder else KERNELS
    if unknown := set(names) - {kernel.name for kernel in offered}:
        raise SystemExit(f"no kernel {', '.join(sorted(unknown))}")
    kernels = [kernel for kernel in offered if not names or kernel.name in names]
    if folder:
        os.environ[sources.FOLDER] = str(folder.resolve())
    started = time.monotonic()
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # of each process
    try:
        machine = {**environment.provenance(), **bench.context()}
    except MachineError as error:
        raise SystemExit(str(error)) from None
    rows_of_times = [row for row in stored(output) if row.get("row") == "time"]
    kept: dict[str, Row] = {row["name"]: row for row in stored(output) if "expected" in row}
    found: list[Row] = []
    for row in rows(kernels, seconds - MORE - (time.monotonic() - started)):
        print(line(row), flush=True)
        found.append(row)
        kept[row["name"]] = {**machine, **row}
        verdicts = [kept[kernel.name] for kernel in every if kernel.name in kept]
        rewrite(output, [*verdicts, *rows_of_times])
    for kernel in kernels:
        if all(row["name"] != kernel.name for row in found):
            print(f"{kernel.name:18} left out: no time")
    wrong = [row for row in found if not well(row)]
    print(f"{len(found)} of {len(kernels)} kernels judged, {len(wrong)} otherwise than expected")
    if wrong or not found:
        print("\n".join(map(line, wrong)))
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
