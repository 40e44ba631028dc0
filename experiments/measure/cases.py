"""What is measured on a GPU, in the order in which a run's time is spent on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module

from experiments.harness.facts import PAPERS, papers
from winolab.bench.compare import Effort
from winolab.bench.layers import SQUARES, Layer

GRADIENT = ("backward_filter",)


def lists() -> dict[str, list[Layer]]:
    """Layers by list: this package's, and those of the papers that have a module ``lists``."""
    found = dict(SQUARES)
    for paper in papers():
        if (PAPERS / paper / "lists.py").is_file():
            found |= import_module(f"papers.{paper}.lists").LISTS
    return found


LISTS = lists()


@dataclass(frozen=True)
class Case:
    """One comparison; ``list`` is the first list that has the layer."""

    list: str
    layer: Layer
    direction: str
    group: str
    effort: Effort

    @property
    def key(self) -> tuple[str, str, str]:
        return str(self.layer), self.direction, self.group


FULL = Effort(prepared=True)
FEW = Effort(rounds=3, errors=False)
BRIEF = Effort(rounds=3, torch=False, tf32=False, errors=False)
PLAN: list[tuple[str, tuple[str, ...], tuple[str, ...], Effort]] = [
    ("dragon", ("forward",), ("fp32",), FULL),
    ("resnet", ("forward",), ("fp32",), FULL),
    ("resnet1", ("forward",), ("fp32",), FULL),
    ("odd", ("forward",), ("fp32",), FEW),
    ("dragon", ("forward",), ("fp16",), FEW),
    ("table3", ("forward",), ("fp32",), BRIEF),
    ("grid", ("forward",), ("fp32",), BRIEF),
    ("dragon", ("backward_data",), ("fp32",), BRIEF),
    ("winrs", GRADIENT, ("fp32",), Effort(rounds=3, tf32=False)),
    ("winrs", GRADIENT, ("fp16",), Effort(rounds=3)),
    ("dragon", ("backward_data",), ("fp16",), FEW),
    ("dragon", ("forward",), ("bf16",), FEW),
    ("winrs", GRADIENT, ("bf16",), Effort(rounds=3)),
    ("resnet", ("forward", "backward_data"), ("fp16",), FEW),
    ("resnet1", ("forward", "backward_data"), ("fp16", "bf16"), FEW),
    ("pointwise", ("forward", "backward_data"), ("fp16", "bf16"), FEW),
    ("resnet", ("backward_data",), ("fp32",), BRIEF),
    ("dragon", ("backward_data",), ("bf16",), FEW),
    ("resnet", ("forward", "backward_data"), ("bf16",), FEW),
    ("odd", ("backward_data",), ("fp32",), BRIEF),
    ("table3", ("backward_data",), ("fp32",), BRIEF),
    ("grid", ("backward_data",), ("fp32",), BRIEF),
    ("table3", ("forward",), ("fp16",), FEW),
    ("grid", ("forward",), ("fp16",), FEW),
    ("dragon", GRADIENT, ("fp32", "fp16"), replace(BRIEF, torch=True)),
    ("resnet", GRADIENT, ("fp32", "fp16"), replace(BRIEF, torch=True)),
    ("odd", GRADIENT, ("fp32", "fp16", "bf16"), replace(BRIEF, torch=True)),
    ("odd", ("forward", "backward_data"), ("fp16", "bf16"), FEW),
]


def cases(lists: str = "") -> Iterator[Case]:
    """Every case once, those of the named lists (with commas) or all."""
    wanted = lists.split(",") if lists else list(LISTS)
    for name in wanted:
        if name not in LISTS:
            raise ValueError(f"list {name!r}; expected {', '.join(LISTS)}")
    seen = set()
    for name, directions, groups, effort in PLAN:
        for direction in directions:
            for group in groups:
                for layer in LISTS[name] if name in wanted else ():
                    # PyTorch's search among wide filters in FP32 takes longer than all else.
                    torch = effort.torch and not (group == "fp32" and layer.taps > 3)
                    case = Case(name, layer, direction, group, replace(effort, torch=torch))
                    if case.key not in seen:
                        seen.add(case.key)
                        yield case
