"""On a GPU: hardware counters of the kernels, by ncu: ``python -m experiments.measure.counters``.

Each case of CASES is launched once under the profiler, clocks and caches left as they are; every
kernel of the plan gives a row in experiments/results/counters.jsonl, which the run replaces; with
``--cases`` only rows of the same plans. With ``--networks`` the cases are picks of networks' layers
that are below the least which is aimed at, and their rows are added to counters_networks.jsonl: a
plan that has some on this GPU is not counted again, and ``--seconds`` ends a sitting. A library's
function has a row for each kernel that it launches, with its name.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.gpu import samples
from experiments.gpu.counters import PLAN
from experiments.gpu.losses import slower
from experiments.gpu.ncu import NAMES, read
from experiments.gpu.rows import cases as measured_cases
from experiments.gpu.rows import stored
from experiments.harness.facts import ROOT
from experiments.harness.machines import stored as kept
from experiments.measure.fused import beside
from experiments.measure.nested import COUNTED
from experiments.measure.throughput import compile_all
from winolab.algorithm import Algorithm, parse_algorithm
from winolab.bench.contenders import Arrays, entered, launched, unnamed
from winolab.bench.layers import parse_layer
from winolab.cli import bench
from winolab.gpu import driver
from winolab.gpu.driver import Launchable
from winolab.gpu.families.fused2d.plan import Fused2dPlan
from winolab.gpu.params import MATMUL, Params
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.planner import plan as planned
from winolab.gpu.planner.request import Plan
from winolab.gpu.runtime.call import kernels_of
from winolab.lines import add, rewrite

RESULTS = ROOT / "experiments" / "results" / "counters.jsonl"
SECONDS = 240  # that the profiler may take
EACH = 4.0  # seconds of a layer, with its share of the profiler's start
AT_ONCE = 10  # cases of networks that the profiler has at once: it writes its table when it ends
FORWARD, FILTER = "forward", "backward_filter"
MARK = "winolab_mark"  # a kernel that does nothing
MARKING = f'extern "C" __global__ void {MARK}() {{}}'


@dataclass(frozen=True)
class Case:
    """The plan of these products that is predicted to be the fastest for a layer, or that of this
    kernel and block shape; ``policy``, "ahead=1", is what it has changed.
    """

    layer: str
    direction: str
    products: str
    algorithm: str | None = None
    kernel: str | None = None
    shape: str | None = None
    policy: str | None = None

    @property
    def named(self) -> tuple[Any, ...]:
        """What rows of its plan share, if it names the plan."""
        return self.layer, self.direction, self.products, self.kernel, self.shape

    @property
    def group(self) -> str:
        """The type of the arrays."""
        return self.products.split("_")[0]

    def plan(self) -> Plan | None:
        """The plan, or None where no kernel of ours runs the case."""
        problem = parse_layer(self.layer).problem
        asked = parse_algorithm(self.algorithm) if self.algorithm else None
        if asked == beside.ALGORITHM:
            case = beside.Case("opencnn", "", 1, problem)
            found: Iterable[Plan] = beside.planned(case, driver.device(0))
        else:
            found = entered(self.direction, problem, self.group, asked)
            if asked is None:  # a library's may be the fastest of its list
                request = unnamed(self.direction, problem, self.group)
                found = *found, *candidates(request, near=True).plans
        asked_for = self.products, self.kernel, self.shape
        for plan in found:
            has = plan.precision, plan.kernel, str(plan.config)
            fits = all(wish in (None, one) for wish, one in zip(asked_for, has, strict=True))
            # A library's kernels have names of their own: they are counted where they are meant.
            if fits and (plan.source() or self.kernel == plan.kernel):
                return self._changed(plan, asked) if self.policy else plan
        return None

    def _changed(self, plan: Plan, asked: Algorithm | None) -> Plan:
        """The plan with the policy."""
        name, value = (self.policy or "").split("=")
        config: Any = replace(plan.config, **{name: int(value)})
        request = unnamed(self.direction, plan.problem, self.group)
        return planned(replace(request, algorithm=asked, config=config))


# The profiler takes about 3 s a case: what is cut off by a run's end stands last.
CASES = (
    Case("128x48x48x128:128x3x3", FORWARD, "fp32_split", "gamma:8:6:3"),
    Case("128x96x96x64:64x3x3", FORWARD, "fp32_split", "gamma:8:6:3"),
    Case("128x48x48x128:128x3x3", FORWARD, "fp16", "gamma:8:6:3"),
    Case("128x48x48x128:128x3x3", FORWARD, "fp32", "gamma:8:6:3"),
    Case("32x64x64x128:128x9x9", FORWARD, "fp32", "gamma:16:8:9"),
    Case("32x112x112x128:128x3x3", FILTER, "fp16"),
    Case("32x112x112x128:128x3x3", FILTER, "fp32_split"),
    Case("32x112x112x128:128x3x3", FILTER, "fp32"),
    Case("64x64x64x128:128x5x5", FORWARD, "fp32_split", "gamma:8:4:5"),
    Case("32x26x26x320:320x7x7", FORWARD, "fp32_split"),  # nested
    Case("128x96x96x64:64x3x3", FORWARD, "fp32", "gamma:8:6:3"),
    Case("32x14x14x256:256x3x3", FORWARD, "fp32_split", "gamma:8:6:3"),
    Case("32x14x14x256:256x3x3", FORWARD, "fp32", "gamma:8:6:3"),
    Case("128x96x96x64:64x3x3", FORWARD, "fp16", "gamma:8:6:3"),
    Case("128x12x12x512:512x3x3", FORWARD, "fp32_split", "gamma:8:6:3"),
    Case("32x64x64x128:128x9x9", FILTER, "fp16"),
    Case("64x64x64x128:128x5x5", FORWARD, "fp32", "gamma:8:4:5"),
    Case("32x64x64x128:128x9x9", FILTER, "fp32"),
    Case("32x64x64x128:128x9x9", FILTER, "fp32", kernel="Ω16(9,8)"),
    Case("32x64x64x128:128x9x9", FILTER, "fp32_split", kernel="Ω16(9,8)"),
    Case("32x64x64x128:128x8x8", FILTER, "fp32", kernel="Ω16(8,9)"),
    Case("32x32x32x256:256x7x7", FORWARD, "fp32_split", "gamma:10:4:7"),
    Case("128x56x56x128:128x2x2", FORWARD, "fp32", "gamma:8:7:2"),
    Case("32x40x40x128:128x7x7", FORWARD, "fp32", "gamma:16:10:7"),
)
# The policies of the fused kernel: openCNN's memory order, its layouts and blocks of 64 and 32
# filters, and ours.
CHWN = "order=chwn images=32 rows=1 columns=1"
POLICIES = (
    f"64x32x8 yan stages=3+2 {CHWN} yvec=1",
    f"64x32x8 sts64 stages=3+2 {CHWN}",
    f"64x32x8 sts64_final stages=3+2 {CHWN}",
    f"64x32x8 compact stages=3+2 {CHWN} buffers=2",
    f"32x32x8 sts64 stages=3+2 {CHWN} teams=2",
    "64x32x8 channels stages=3+2 ahead=1",
)
VARIANTS = (
    *(
        Case(layer, FORWARD, "fp32", str(beside.ALGORITHM), shape=shape)
        for layer in (
            "128x56x56x64:64x3x3", "128x28x28x128:128x3x3", "128x14x14x256:256x3x3",
            "128x7x7x512:512x3x3",
        )
        for shape in POLICIES
    ),
    # Im2col-Winograd's, and WinRS's in 16 bits beside two launches
    *(
        Case("32x48x48x128:128x3x3", FORWARD, "fp32", f"gamma:8:6:3;variant={name}")
        for name in ("base", "ruse", "base+fused")
    ),
    *(
        Case("32x48x48x128:128x9x9", FORWARD, "fp32", f"gamma:16:8:9;variant={name}")
        for name in ("base", "ruse", "c64")
    ),
    *(
        Case(f"32x56x56x128:128x{taps}x{taps}", FILTER, "fp16", f"omega:{sizes}{variant}")
        for taps, sizes in ((3, "8:3:6"), (9, "16:9:8"))
        for variant in (";variant=fused", "")
    ),
    *(
        Case(f"32x56x56x128:128x{taps}x{taps}", FILTER, "fp16", f"omega:{sizes};variant=fused",
             policy=policy)
        for taps, sizes in ((3, "8:3:6"), (9, "16:9:8"))
        for policy in ("ahead=0", "half2=1")
    ),
    *(Case(layer, way, "fp32_split", named) for layer, way, named in COUNTED),
)  # fmt: skip
FIRST = 10  # of CASES: come before the layers that are furthest behind another library
SLOWEST = 20  # of those: every filter gradient, others one of each precision and size of filter


def every() -> list[Case]:
    """CASES, and the layers that are furthest behind another library by kept rows."""
    slow: dict[tuple, Case] = {}
    taken = {(case.layer, case.direction, case.products) for case in CASES}
    for one in slower(measured_cases(stored())):
        c, products = one.case, one.mine["products"]
        if (c.name, c.direction, products) not in taken:
            kind = c.direction, c.group, c.name if c.direction == FILTER else c.layer.taps
            what = one.mine["kernel"], one.mine["plan"]
            slow.setdefault(kind, Case(c.name, c.direction, products, None, *what))
    return [*CASES[:FIRST], *VARIANTS, *list(slow.values())[:SLOWEST], *CASES[FIRST:]]


def of_networks() -> list[Case]:
    """Picks of networks' layers that are far below the least which is aimed at."""
    return [Case(*each) for each in samples.slowest()]


class Profiled:
    """A kernel whose first launch of each grid is profiled; ``notes`` gets a line on it.

    A library's function may launch several: behind it the profiler sees MARK.

    Launches begin when those before them have ended, whatever the plan asks for.
    """

    def __init__(self, kernel: Launchable, notes: list[dict], calls: Counter[tuple]) -> None:
        self.kernel, self.notes, self.calls = kernel, notes, calls

    def __call__(
        self, grid: tuple[int, int, int], threads: int, params: Params, early: bool = False
    ) -> None:
        profiler = driver.cupy().cuda.profiler
        first = not self.calls[self.kernel.name, grid]
        self.calls[self.kernel.name, grid] += 1
        if first:
            self.notes.append({"launch": self.kernel.name, "grid": grid, "threads": threads})
            profiler.start()
        self.kernel(grid, threads, params)
        if first:
            if self.kernel.name == MATMUL:
                driver.cupy().RawKernel(MARKING, MARK)((1,), (1,), ())
            driver.cupy().cuda.get_current_stream().synchronize()
            profiler.stop()


def launches(case: Case) -> Iterator[dict[str, Any]]:
    """Launch a case's plan once; what was profiled, in order, and how often the plan does it."""
    plan = case.plan()
    if plan is None:
        return
    notes: list[dict[str, Any]] = []
    calls: Counter[tuple] = Counter()
    loaded = kernels_of(plan, 0)
    kernels = {name: Profiled(kernel, notes, calls) for name, kernel in loaded.items()}
    arrays = Arrays(plan.direction, plan.problem, case.group)
    arrays.fill(-1, 1)
    workspace = driver.cupy().empty(plan.workspace, "uint8")
    if isinstance(plan, Fused2dPlan):
        ordered = beside.Ordered(arrays, plan.config.order)
        beside.fused(plan, arrays, ordered, workspace.data.ptr, kernels)
    else:
        launched(plan, kernels, 0, *arrays.addresses(), workspace.data.ptr)
    driver.cupy().cuda.runtime.deviceSynchronize()
    for note in notes:
        yield {
            "layer": case.layer,
            "direction": case.direction,
            "products": case.products,
            "kernel": plan.kernel,
            "points": plan.points,
            "plan": str(plan.config),
            **note,
            "calls": calls[note["launch"], note["grid"]],
        }


def child(folder: Path) -> None:
    """Launch the cases of the folder's cases.json, a JSON object a profiled kernel into it."""
    with (folder / "launches.jsonl").open("w") as file:
        for fields in json.loads((folder / "cases.json").read_text()):
            for line in launches(Case(*fields)):
                file.write(json.dumps(line) + "\n")
                file.flush()
            driver.cupy().get_default_memory_pool().free_all_blocks()


def profiled(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """The rows of these cases, as far as the profiler came."""
    with tempfile.TemporaryDirectory() as folder:
        notes, log = Path(folder) / "launches.jsonl", Path(folder) / "ncu.csv"
        (Path(folder) / "cases.json").write_text(json.dumps([astuple(case) for case in cases]))
        command = [
            "ncu", "--clock-control", "none", "--cache-control", "none",
            "--profile-from-start", "off", "--metrics", ",".join(NAMES),
            "--csv", "--page", "raw", "--print-units", "base",
            "--log-file", str(log), sys.executable, "-m", "experiments.measure.counters",
            "--launch", folder,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, timeout=SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            done = f"more than {SECONDS} s"
        if done:
            text = log.read_text()[-2000:] if log.exists() else ""
            print(f"the profiler's run ended with {done}; what it left is kept\n{text}")
        if not (notes.exists() and log.exists()):
            return
        lines = [json.loads(line) for line in notes.read_text().splitlines()]
        yield from matched(lines, read(log.read_text()))


def matched(
    lines: Iterable[dict[str, Any]], table: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """What was launched, each with what ncu counted: one row of a kernel of ours, as many as stand
    before MARK of a library's function. Raises RuntimeError where another kernel was counted."""
    for line in lines:
        found = []
        for counted in table:
            name = counted.pop("kernel_name")
            if line["launch"] != MATMUL:
                if line["launch"] not in name:
                    raise RuntimeError(f"{name} where {line['launch']} was launched")
                yield {**line, **counted}
                break
            if MARK in name:
                yield from found
                break
            found.append({**line, "of_library": name, **counted})


def main(
    numbers: Annotated[str, typer.Option("--cases", help="Numbers of cases, with commas.")] = "",
    output: Annotated[Path, typer.Option(help="File that is written.")] = RESULTS,
    compile_only: Annotated[bool, typer.Option("--compile", help="Only fill the cache.")] = False,
    networks: Annotated[bool, typer.Option("--networks", help="Slow layers of networks.")] = False,
    seconds: Annotated[float, typer.Option(help="Time that --networks may take.")] = SECONDS,
    folder: Annotated[Path | None, typer.Option("--launch", hidden=True)] = None,
) -> None:
    """Count what every kernel does on this GPU."""
    if folder:
        child(folder)
        return
    end = time.monotonic() + seconds
    bench.ready()
    cases = of_networks() if networks else every()
    if networks and output == RESULTS:
        output = RESULTS.with_stem("counters_networks")
    if numbers:
        cases = [cases[int(n)] for n in numbers.split(",")]
    if compile_only:
        print(f"{_compiled(cases)} kernels", flush=True)
        return
    if shutil.which("ncu") is None:
        raise SystemExit("ncu, NVIDIA's Nsight Compute, is not on the path")
    machine = bench.context()
    if not networks:
        rows = counted(cases, machine)
        mine = {plan_of(row) for row in rows}
        left = [row for row in kept(output) if plan_of(row) not in mine] if numbers else []
        rewrite(output, [*left, *rows])  # those that were there stay if this is interrupted
        return
    there = {plan_of(row) for row in kept(output)}
    cases = [case for case in cases if (*case.named, machine["device"]) not in there]
    for first in range(0, len(cases), AT_ONCE):
        if time.monotonic() > end:
            print(f"no time for {len(cases) - first} layers; call again to go on")
            break
        some = cases[first : first + AT_ONCE]
        print(f"{_compiled(some)} kernels of {len(some)} layers", flush=True)
        add(output, counted(some, machine))


def outstanding(words: Sequence[str]) -> tuple[int, float] | None:
    """Slow layers of networks that were not counted on any GPU, and seconds of one."""
    if "--networks" not in words:
        return None
    there = {plan_of(row)[:-1] for row in kept(RESULTS.with_stem("counters_networks"))}
    return sum(case.named not in there for case in of_networks()), EACH


def _compiled(cases: Iterable[Case]) -> int:
    """Compile the cases' kernels on all cores, since a launch would compile one by one."""
    return compile_all(plan for plan in (case.plan() for case in cases) if plan)


def counted(cases: Sequence[Case], machine: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of these cases, which are shown."""
    rows = []
    for row in profiled(cases):
        rows.append({**row, **machine})
        speed = f"{row['seconds'] * 1e6:.0f} µs, issue {row['issue']:.0f} %"
        print(row["layer"], row["products"], row["kernel"], row["launch"], speed, flush=True)
    return rows


def plan_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What rows of one plan on one GPU share."""
    return tuple(row[name] for name in (*PLAN, "device"))


if __name__ == "__main__":
    typer.run(main)
