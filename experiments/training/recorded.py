"""On a GPU: fused Ω in FP16 on gradients that were recorded while a network trained.

``python -m experiments.training.recorded [--seconds S]`` trains ResNet-34 of 32² under
autocast with a loss scale, PyTorch's convolutions, and keeps x, dy and dw of some 3×3 layers at
some steps; then it adds rows to experiments/results/winrs_recorded.jsonl, one a tensor pair and
kernel: whether dw is finite, its relative RMS error against FP64 sums of the same numbers, the
largest magnitude of dw, and whether dy itself was finite (a loss scale that is too large overflows
before any filter gradient). ``kind`` is "fused", "fused, FP16 sums" (the paper's), of these two
"no scaling" and "one segment", "two launches" and "picked".
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

from experiments.harness.facts import ROOT
from experiments.measure.published.rows import Row, layer_of
from experiments.measure.throughput import compile_all
from experiments.training.runs import Run
from experiments.training.trainer import train
from winolab.algorithm import Problem, omega
from winolab.arguments.variants import FUSED, FUSED_FP16
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, ours, unnamed
from winolab.cli import bench
from winolab.cli.screen.render import plain
from winolab.gpu import driver
from winolab.gpu.families import registry
from winolab.gpu.families.wgrad_mma.plan import PAPER
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan
from winolab.lines import add

RESULTS = ROOT / "experiments" / "results" / "winrs_recorded.jsonl"
RUN = Run("resnet34", 32, 10, "sgdm", 256, images=10_000, tested=0, steps=61, rate=0.05,
          method="torch", amp="fp16")  # fmt: skip
STEPS, LAYERS = (0, 5, 20, 60), 4
FAMILY = {family.name: family for family in registry.FAMILIES}


@dataclass
class Record:
    """What one layer multiplied in a step: channels-first tensors. dy is times the loss scale, dw,
    PyTorch's, is not."""

    step: int
    name: str
    scale: float
    padding: int
    x: Tensor | None = None
    dy: Tensor | None = None
    dw: Tensor | None = None

    @property
    def problem(self) -> Problem:
        """The layer's."""
        assert self.x is not None
        assert self.dw is not None
        n, c, h, w = self.x.shape
        k, _, taps, _ = self.dw.shape
        return Problem.of((n, h, w, c), (k, taps, taps, c), padding=self.padding)


@dataclass
class Recorder:
    """Keeps the tensors of some layers, evenly spread over the network's 3×3 ones of stride 1."""

    steps: tuple[int, ...] = STEPS
    layers: int = LAYERS
    records: list[Record] = field(default_factory=list)

    @contextmanager
    def __call__(self, step: int, model: nn.Module, scale: float) -> Iterator[None]:
        """Around a step."""
        if step not in self.steps:
            yield
            return
        made = [(layer, self._record(step, name, scale, layer)) for name, layer in self.of(model)]
        hooks = [self._hook(layer, record) for layer, record in made]
        yield
        for hook in hooks:
            hook.remove()
        for layer, record in made:
            assert layer.weight.grad is not None
            record.dw = layer.weight.grad.detach().clone()
        self.records += [record for _, record in made]

    def of(self, model: nn.Module) -> list[tuple[str, nn.Conv2d]]:
        """The layers by name."""
        every = [
            (name, layer)
            for name, layer in model.named_modules()
            if isinstance(layer, nn.Conv2d)
            and (layer.kernel_size, layer.stride, layer.groups) == ((3, 3), (1, 1), 1)
        ]
        last = len(every) - 1
        chosen = dict.fromkeys(round(i * last / (self.layers - 1)) for i in range(self.layers))
        return [every[i] for i in chosen]

    @staticmethod
    def _record(step: int, name: str, scale: float, layer: nn.Conv2d) -> Record:
        padding = layer.padding
        assert isinstance(padding, tuple)
        return Record(step, name, scale, padding[0])

    @staticmethod
    def _hook(layer: nn.Conv2d, record: Record) -> Any:
        """Keeps what the layer multiplies; returns what removes it."""

        def kept(dy: Tensor) -> None:
            record.dy = dy.detach().clone()

        def forward(_: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> None:
            record.x = inputs[0].detach().to(y.dtype, copy=True)  # as autocast multiplies it
            y.register_hook(kept)

        return layer.register_forward_hook(forward)


def planned(problem: Problem) -> dict[Plan, str]:
    """The plans of a layer, and what each is."""
    request = unnamed("backward_filter", problem, "fp16")
    found: dict[Plan, str] = {}
    for tile in PAPER:
        if problem.filter[-1] % tile.n:
            continue
        for kind, variant in (("fused", FUSED), ("fused, FP16 sums", FUSED_FP16)):
            for name, segments in (("", None), (", one segment", 1)):
                named = omega(tile.alpha, tile.n, tile.r, variant=variant, segments=segments)
                asked = replace(request, algorithm=named)
                p: Any = min(FAMILY["wgrad_mma"].plans(asked), key=lambda p: p.predicted)
                found.setdefault(p, kind + name)
                if segments is None:
                    bare = replace(p, config=replace(p.config, scaled=0))
                    found.setdefault(bare, f"{kind}, no scaling")
        with suppress(ValueError):
            named = omega(tile.alpha, tile.n, tile.r)
            apart = FAMILY["wgrad_winograd"].plans(replace(request, algorithm=named))
            found.setdefault(min(apart, key=lambda p: p.predicted), "two launches")
    found.setdefault(plan(request), "picked")
    return found


def rows_of(record: Record, kinds: dict[Plan, str]) -> list[Row]:
    """The rows of a record: one a plan."""
    cp, problem = driver.cupy(), record.problem
    assert record.x is not None
    assert record.dy is not None
    x, dy = (cp.from_dlpack(t.float().permute(0, 2, 3, 1).contiguous())
             for t in (record.x, record.dy))  # fmt: skip
    arrays = Arrays("backward_filter", problem, "fp16")
    arrays.assign(x, dy)
    exact = oracle.fp64("backward_filter", problem, *arrays.operands["NHWC"])
    space = cp.empty(max(p.workspace for p in kinds) + 1, "uint8").data
    common = {
        **layer_of("backward_filter", problem),
        "network": RUN.network,
        "step": record.step,
        "name": record.name,
        "loss_scale": record.scale,
        "dy_finite": bool(cp.isfinite(dy).all()),
        "dy_max": _number(abs(dy).max()),
        "x_max": _number(abs(x).max()),
        "dw_max": _number(abs(exact).max()),
    }
    found = []
    for contender, (p, kind) in zip(ours(dict.fromkeys(kinds, False)), kinds.items(), strict=True):
        arrays.poison()
        contender.call(arrays, space.ptr)()
        dw = arrays.results["NHWC"]
        error = oracle.relative_rms(dw, exact)
        found.append(
            {
                **common,
                "kind": kind,
                **contender.labels,
                "segments": getattr(p, "segments", None),
                "finite": bool(cp.isfinite(dw).all()),
                "relative_rms": error if math.isfinite(error) else "nan",
            }
        )
    return found


def _number(value: Any) -> float | str:
    """A number for a row, which holds no infinity."""
    return float(value) if math.isfinite(float(value)) else str(float(value))


def main(
    seconds: Annotated[float, typer.Option(help="No record is begun later.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Train, record, and measure."""
    end = time.monotonic() + seconds
    bench.ready()
    recorder = Recorder()
    told = train(RUN, "cuda", recorder)
    print(f"losses {told['losses']}, loss scale {told['loss_scale']}", flush=True)
    kinds = {record.problem: planned(record.problem) for record in recorder.records}
    print(f"{compile_all(p for mine in kinds.values() for p in mine)} kernels", flush=True)
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    torch.cuda.empty_cache()
    for record in sorted(recorder.records, key=lambda record: -record.step):
        if time.monotonic() > end:
            break
        made = rows_of(record, kinds[record.problem])
        add(output, [plain({**row, **machine}) for row in made])
        lost = [row["kind"] for row in made if not row["finite"]]
        errors = [row["relative_rms"] for row in made if isinstance(row["relative_rms"], float)]
        print(record.step, record.name, f"dy finite {made[0]['dy_finite']}, scale {record.scale}:",
              f"not finite {lost}; errors {min(errors, default=math.nan):.1e} to",
              f"{max(errors, default=math.nan):.1e}", flush=True)  # fmt: skip
        free()


if __name__ == "__main__":
    typer.run(main)
