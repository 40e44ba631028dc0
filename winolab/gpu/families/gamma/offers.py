"""Which plans of Γ on Tensor Cores a request may have: of its tiles, by configs of a family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from winolab.algorithm import Tile
from winolab.arguments.words import plural
from winolab.gpu.families.correlation_params import counted
from winolab.gpu.families.gamma.config import GammaConfig
from winolab.gpu.families.gamma.plan import GammaTensorPlan
from winolab.gpu.families.gamma.tiles import Widths, tiles, widths_of
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.fallback import checkable, unchecked
from winolab.gpu.planner.request import Request

P = TypeVar("P", bound=GammaTensorPlan)
C = TypeVar("C", bound=GammaConfig)


def offered(
    kind: type[P],
    configs: Callable[[Tile, Correlation, Request], Iterator[C]],
    request: Request,
    widths: Widths | None = None,
) -> list[P]:
    """Plans without times, of every tile and block shape. Raises ValueError where none can run."""
    c = Correlation.of(request.problem, request.direction)
    every = (
        planned(kind, request, c, tile, config)
        for tile in tiles_of(c, request, widths)
        for config in configs(tile, c, request)
    )
    return some((p for p in every if shares(p)), c, request)


def tiles_of(c: Correlation, request: Request, widths: Widths | None = None) -> tuple[Tile, ...]:
    """The tiles that can run a request. Raises ValueError where none can, and says why."""
    precision = request.precision
    if precision == "fp32_split" and not (c.empty or checkable(c.output[2])):
        raise unchecked(c.output[2:])
    return tiles(c, request.algorithm, precision, widths or widths_of(precision))


def planned(kind: type[P], request: Request, c: Correlation, tile: Tile, config: GammaConfig) -> P:
    """The plan of a family's kind for a config, without its time."""
    what = request.direction, request.problem, c, tile, request.points, request.precision
    return kind(*what, request.stored, config, request.device)


def shares(plan: GammaTensorPlan) -> bool:
    """Whether every block of a cluster has a part of the sum."""
    return plan.config.split_k <= max(1, plan.steps)


def some(plans: Iterable[P], c: Correlation, request: Request) -> list[P]:
    """The plans. Raises ValueError where there are none."""
    found = list(plans)
    if not found:
        what = request.config or request.algorithm
        raise ValueError(
            f"{what} does not fit a filter {c.filter[1]} high, {plural(c.channels, 'channel')} "
            f"and {plural(c.out_channels, 'output channel')} on {request.device.name}"
        )
    return counted(found)
