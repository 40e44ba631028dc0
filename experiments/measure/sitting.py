"""On a GPU: everything that needs one, in one sitting: ``python -m experiments.measure.sitting``.

STEPS stand in the order of what is to be known first: the tests and the sanitizer, layers and their
picks, then each paper's own measurements, networks and training. A step is a command of its own; it
gets the seconds that the table says or those that are left of ``--seconds``, and one that fails
ends no other, but the exit code is 1 then. ``--only`` takes steps by name (``fused=60``: with
another limit), ``--list`` prints them and stops, ``--left`` those that can say, without a GPU, how
many cases have no rows yet and about how many seconds these take. ``--changed FILE`` writes what
the sitting left in experiments/results and in the steps' logs into a tar file.

``--gpus N`` shares the steps out among N GPUs: each takes the next step when it has ended one, with
its share of the processor's cores, and what needs several GPUs comes last, alone.

A sitting goes on where another ended: most steps add only rows that are not there.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import PAPERS, ROOT
from experiments.harness.tables import RESULTS

LOGS = ROOT / "build" / "sitting"
LEAST = 10  # seconds under which no step begins
GRACE = 30  # seconds after which a step is stopped that was to stop by itself
SHOWN = 3  # last lines of a step


@dataclass(frozen=True)
class Step:
    """A command of this sitting: ``python -m COMMAND``, with ``--seconds`` where ``limited``."""

    name: str
    seconds: float
    command: str
    limited: bool = True
    torchrun: bool = False

    def line(self, seconds: float) -> list[str]:
        """The command's words."""
        start = ["torch.distributed.run", "--nproc-per-node", "2"] if self.torchrun else []
        module, *rest = self.command.split()
        limit = ["--seconds", f"{seconds:.0f}"] if self.limited else []
        inner = ["-m", module] if start else [module]
        return [sys.executable, "-m", *start, *inner, *rest, *limit]

    def outstanding(self) -> tuple[int, float] | None:
        """Cases that have no rows yet, and seconds of one, as the command's module says by a
        function of this name, of the command's words; None where it has none."""
        module, *rest = self.command.split()
        match module.split("."):
            case ["papers", paper, "gpu_times"]:
                found: Any = import_module(f"papers.{paper}.gpu_times")
            case ["papers", paper, "measure", name]:
                found = import_module(f"papers.{paper}.measure.{name}")
            case ["experiments", "measure", "layers"]:
                from experiments.measure import layers as found
            case ["experiments", "measure", "counters"]:
                from experiments.measure import counters as found
            case ["experiments", "networks", "end_to_end"]:
                from experiments.networks import end_to_end as found
            case ["experiments", "training", "run"]:
                from experiments.training import run as found
            case _:
                return None
        return found.outstanding(rest) if hasattr(found, "outstanding") else None


_SANITIZER = "--changed --rows experiments/results/sanitizer.jsonl"
_FIRST = "resnet18,resnet50,vgg16,inception_v3"
_SECOND = "densenet121,convnext_tiny,efficientnet_b0,unet2d,unet3d,video_decoder"
_NETWORKS = "experiments.networks.end_to_end --networks"
_PAPERS = tuple(  # steps of papers that have times of their own on a GPU, by its first word
    Step(path.parent.name.partition("_")[0], 200, f"papers.{path.parent.name}.gpu_times")
    for path in sorted(PAPERS.glob("*/gpu_times.py"))
)
_MEASURED = tuple(  # the same of what a paper's folder "measure" has for a GPU, by its file, too
    Step(
        f"{path.parents[1].name.partition('_')[0]}_{path.stem}",
        200,
        f"papers.{path.parents[1].name}.measure.{path.stem}",
    )
    for path in sorted(PAPERS.glob("*/measure/*.py"))
    if path.read_text().startswith('"""On a GPU')
)
STEPS = (
    Step("tests", 430, "pytest -q -n auto -m gpu tests/gpu", limited=False),
    Step("net_forward", 300, "experiments.measure.layers networks_forward"),
    Step("net_data", 300, "experiments.measure.layers networks_backward_data"),
    Step("net_filter", 300, "experiments.measure.layers networks_backward_filter"),
    Step("pointwise", 300, "experiments.measure.ways.pointwise"),
    Step("sanitizer", 300, f"tests.gpu.sanitize {_SANITIZER}", limited=False),
    Step("judge", 120, "experiments.judged.on_gpu"),
    Step("problems", 300, "tests.gpu.accumulate --problems 16"),
    Step("eager", 300, f"{_NETWORKS} {_FIRST} --modes eager"),
    Step("eager_too", 300, f"{_NETWORKS} {_SECOND} --modes eager"),
    Step("throughput", 300, "experiments.measure.throughput"),
    Step("cifar", 300, "experiments.training.run --plan cifar"),
    Step("ilsvrc", 200, "experiments.training.run --plan ilsvrc"),
    Step("order", 60, "experiments.measure.memory_order", limited=False),
    Step("fused", 120, "experiments.measure.fused.beside"),
    Step("fused_own", 120, "experiments.measure.fused.own"),
    Step("fused_errors", 40, "experiments.measure.fused.errors"),
    Step("fused_steps", 30, "experiments.measure.fused.left_out"),
    Step("fused_loop", 60, "experiments.measure.fused.wgmma_loop"),
    Step("im2col", 90, "experiments.measure.published.im2col"),
    Step("opencnn", 60, "experiments.measure.published.opencnn"),  # build/opencnn carried
    Step("omega", 90, "experiments.measure.published.omega"),
    Step("recorded", 60, "experiments.training.recorded"),
    Step("omega_moduli", 60, "experiments.measure.ways.omega_moduli"),
    *_PAPERS,
    *_MEASURED,
    Step("nested", 80, "experiments.measure.nested"),
    Step("grouped", 60, "experiments.measure.layers grouped"),
    Step("strided", 60, "experiments.measure.layers strided"),
    Step("depthwise", 60, "experiments.measure.layers depthwise"),
    Step("kinds", 300, "experiments.measure.layers depthwise_kinds"),
    Step("thin", 120, "experiments.measure.ways.thin"),
    Step("skinny", 120, "experiments.measure.ways.skinny"),
    Step("positions", 120, "experiments.measure.ways.positions"),
    Step("fp16", 150, "experiments.training.run --plan fp16"),
    Step("seeds", 300, "experiments.training.run --plan seeds"),
    Step("policies", 60, "experiments.measure.ways.policies"),
    Step("twice", 90, "experiments.measure.ways.two_trees --list narrow --most 60"),
    Step("judge_speed", 90, "pytest -q -m gpu tests/gpu/judge/test_speed.py", limited=False),
    Step("compiled", 300, f"{_NETWORKS} resnet18,resnet50 --modes compiled"),
    Step("first", 200, "experiments.measure.first_calls"),
    Step("profiled", 100, "experiments.networks.profiled"),
    Step("optimizers", 60, "experiments.training.profiled", limited=False),
    Step("errors", 60, "experiments.measure.errors"),
    Step("banks", 30, "experiments.measure.fused.shared_memory", limited=False),
    Step("counters", 270, "experiments.measure.counters", limited=False),
    Step("reasons", 240, "experiments.measure.counters --networks"),
    Step("host", 60, "experiments.measure.host_cost", limited=False),
    Step("one", 120, "experiments.training.run --plan one"),
    Step("two", 120, "experiments.training.run --plan two", torchrun=True),  # needs two GPUs
)  # fmt: skip


def chosen(names: str) -> list[Step]:
    """The steps of names with commas, all for one GPU without; ``NAME=SECONDS`` gives one another
    limit. Raises ValueError for an unknown one."""
    known = {step.name: step for step in STEPS}
    found = []
    for wanted in filter(None, map(str.strip, names.split(","))):
        name, _, seconds = wanted.partition("=")
        if name not in known:
            raise ValueError(f"no step {name!r}; expected {', '.join(known)}")
        found.append(replace(known[name], seconds=float(seconds or known[name].seconds)))
    return found or [s for s in STEPS if not s.torchrun]


def sat(
    steps: Sequence[Step], seconds: float, logs: Path = LOGS, gpus: int = 1
) -> Iterator[tuple[bool, str]]:
    """Run steps while time is left, on as many GPUs. Of each: whether none of it went wrong, and a
    line that says how it ended and the last of what it printed."""
    end = time.monotonic() + seconds
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    left = deque(step for step in steps if gpus == 1 or not step.torchrun)
    said: queue.Queue[tuple[bool, str] | None] = queue.Queue()

    def lane(gpu: int | None) -> None:
        while left:
            try:
                said.put(_ended(left.popleft(), end, logs, gpu, gpus))
            except IndexError:  # another lane has the last one
                break
        said.put(None)

    lanes = [None] if gpus == 1 else list(range(gpus))
    for gpu in lanes:
        threading.Thread(target=lane, args=(gpu,), daemon=True).start()
    while lanes:
        one = said.get()
        if one is None:
            lanes.pop()
        else:
            yield one
    for step in steps:
        if gpus > 1 and step.torchrun:
            yield _ended(step, end, logs, None, 1)


def _ended(step: Step, end: float, logs: Path, gpu: int | None, gpus: int) -> tuple[bool, str]:
    """Run a step on one of the GPUs, or on all; see ``sat``."""
    left = min(step.seconds, end - time.monotonic())
    if left < LEAST:
        return True, f"{step.name:11} left out: no time"
    environment, share = dict(os.environ), None
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        mine = sorted(os.sched_getaffinity(0))[gpu::gpus]
        share = partial(os.sched_setaffinity, 0, mine) if mine else None
        environment["PYTEST_XDIST_AUTO_NUM_WORKERS"] = str(max(1, len(mine)))
    began, log = time.monotonic(), logs / f"{step.name}.log"
    # A step that limits itself is let finish what it began.
    most = min(left + GRACE, end - began) if step.limited else left
    with log.open("w") as out:
        try:
            code = subprocess.run(
                step.line(left), cwd=ROOT, stdout=out, stderr=out, timeout=most,
                env=environment, preexec_fn=share,
            ).returncode  # fmt: skip
            how = "done" if not code else f"exit code {code}"
        except subprocess.TimeoutExpired:
            how = "stopped"
    last = " | ".join(log.read_text(errors="replace").split("\n")[-SHOWN - 1 :]).strip(" |")
    return how == "done", f"{step.name:11} {time.monotonic() - began:5.0f} s  {how}: {last[-200:]}"


def kept(file: Path, since: float) -> int:
    """Write the rows' files that changed since then, and the logs, into a tar file; how many."""
    files = [p for p in sorted(RESULTS.glob("*.jsonl")) if p.stat().st_mtime >= since]
    files += sorted(LOGS.glob("*.log"))
    with tarfile.open(file, "w:xz") as tar:
        for path in files:
            tar.add(path, str(path.relative_to(ROOT)))
    return len(files)


def main(
    only: Annotated[str, typer.Option(help="Steps, with commas; all that need one GPU.")] = "",
    seconds: Annotated[float, typer.Option(help="Time of the sitting.")] = 3600,
    gpus: Annotated[int, typer.Option(min=1, help="How many share the steps.")] = 1,
    shown: Annotated[bool, typer.Option("--list", help="Print the steps, and stop.")] = False,
    left: Annotated[bool, typer.Option("--left", help="Print what lacks rows, and stop.")] = False,
    changed: Annotated[Path | None, typer.Option(help="Tar file of changed rows, logs.")] = None,
) -> None:
    """Everything that needs a GPU, in one sitting."""
    try:
        steps = chosen(only)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    if shown:
        for step in steps:
            print(f"{step.name:11} {step.seconds:5.0f} s  {' '.join(step.line(step.seconds)[1:])}")
        return
    if left:
        for step in steps:
            if found := step.outstanding():
                count, each = found
                print(f"{step.name:11} {count:5} cases {count * each:6.0f} s")
        return
    since, well = time.time(), True
    try:
        for fine, line in sat(steps, seconds, gpus=gpus):
            well = well and fine
            print(line, flush=True)
    finally:
        if changed:
            print(f"{kept(changed, since)} files in {changed}")
    if not well:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
