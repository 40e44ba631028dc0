"""The fused kernel's policies, as compute-sanitizer runs them: each layout in each memory order,
boxes, two buffers, sums in parts, gradients, 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any

from winolab.algorithm import Problem, winograd
from winolab.gpu import driver
from winolab.gpu.families.fused2d.config import GRADIENT, ORDERS, Config, narrow
from winolab.gpu.families.fused2d.layouts import layouts
from winolab.gpu.families.fused2d.plan import plans
from winolab.gpu.planner.request import Request

FAMILY = "fused2d.policies"
# Two blocks of filters and several of tiles, neither full, three stages of channels.
LAYER = Problem.of((3, 7, 6, 20), (70, 3, 3, 20), padding=1)


@cache
def configs() -> dict[str, tuple[Config, str]]:
    """By name a config and its direction."""
    found: dict[str, tuple[Config, str]] = {}
    for made, order in product(layouts(64), ORDERS):
        make, direction = (
            (Config, "forward") if made.along == "tiles" else (narrow, "backward_data")
        )
        found[f"{order}:{made.name}"] = make(layout=made.name, order=order, split_k=1), direction
    for order in ORDERS:
        box: dict[str, Any] = {"images": 2, "rows": 4, "columns": 4}
        found[f"{order}:box"] = Config(order=order, split_k=1, **box), "forward"
        found[f"{order}:buffers"] = Config(order=order, buffers=2, split_k=1), "backward_data"
    found["parts"] = Config(ahead=True, split_k=3), "forward"
    found["parts:in_the_block"] = narrow(fused=True, split_k=2), "forward"
    found["in_the_block:ahead"] = Config(ahead=True, fused=True, split_k=1), "backward_data"
    found["group"] = narrow(group=1, split_k=1), "forward"
    single = replace(GRADIENT, teams=1)
    found["gradient"] = replace(GRADIENT, split_k=1), "backward_filter"
    found["gradient:parts"] = replace(single, ahead=True, split_k=3), "backward_filter"
    return found


@dataclass(frozen=True)
class Policy:
    """One of them, in the place of a Mold (tests/gpu/guarded.py)."""

    name: str  # a key of ``configs``
    precision: str = "fp32"
    number: int = 0
    family = FAMILY

    def __str__(self) -> str:
        return f"{FAMILY} {self.name} {self.precision} {self.number}"

    @property
    def gradient(self) -> bool:
        """Whether it computes filter gradients."""
        return configs()[self.name][1] == "backward_filter"

    @cached_property
    def plan(self) -> Any:
        """Its plan of the layer."""
        config, direction = configs()[self.name]
        algorithm = winograd((3, 3), (2, 2)) if self.gradient else winograd((2, 2), (3, 3))
        (found,) = plans(
            Request(LAYER, direction, driver.device(0), algorithm, self.precision, config=config)
        )
        return found

    @property
    def shape(self) -> tuple[Any, ...]:
        """As a Mold's: the result's dtype and the config last."""
        return 3, (1, 1), True, self.plan.out_dtype, self.plan.config

    def problem(self, number: int) -> tuple[Any, bool, None]:
        """The plan, and that arrays are aligned; there is one problem."""
        return self.plan, True, None


def policies() -> Iterator[Policy]:
    """All in FP32, some with numbers of 16 bits."""
    yield from map(Policy, configs())
    for name in ("nhwc:channels", "chwn:sts64", "parts", "gradient"):
        yield Policy(name, "fp16_ffma")
