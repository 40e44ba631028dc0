"""Which plans of Γ on Tensor Cores are built: those whose least time is near the fastest's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from winolab.algorithm import Tile
from winolab.gpu.families.gamma_wgmma.config import shaped, shapes
from winolab.gpu.families.gamma_wgmma.cost import least_seconds
from winolab.gpu.families.gamma_wgmma.tiles import Widths, tiles, widths_of
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.fallback import checkable, unchecked
from winolab.gpu.planner.ranking import least_sure
from winolab.gpu.planner.request import Plan, Request


class Splits(Protocol):
    """A kernel config, as far as it says how a sum is shared."""

    @property
    def split_k(self) -> int:
        """Blocks of a cluster, each with a part of the sum."""
        ...


class Offered(Plan, Protocol):
    """A plan of Γ on Tensor Cores, as far as it is looked at before it has its time."""

    @property
    def config(self) -> Splits: ...
    @property
    def steps(self) -> int:
        """Stages of a block's sum."""
        ...


P = TypeVar("P", bound=Offered)


def offered(
    plan: Callable[..., P],
    configs: Callable[..., Iterator[Any]],
    request: Request,
    widths: Widths | None = None,
) -> list[P]:
    """Plans without times, of every tile and block shape. Raises ValueError where none can run."""
    c = Correlation.of(request.problem, request.direction)
    every = (
        _plan(plan, request, c, tile, config)
        for tile in _tiles(c, request, widths)
        for config in configs(tile, c, request)
    )
    return _some((p for p in every if _shares(p)), c, request)


def promising(
    plan: Callable[..., P], timed: Callable[[P], P], request: Request, times: float
) -> Iterable[P]:
    """Plans with their times, of every tile and block shape whose time may be at most so many
    times the fastest's.

    All where ``times`` is infinite. Shapes are walked by the least time that they can take; what
    the ranking may pass over cuts nothing short. Raises ValueError where none can run.
    """
    c = Correlation.of(request.problem, request.direction)
    every = [s for tile in _tiles(c, request) for s in shapes(tile, c, request)]
    bounds = [0.0] * len(every)
    if times < math.inf:
        bounds = [least_seconds(s, c, request) for s in every]
    found: list[tuple[int, P]] = []
    fastest = math.inf
    for at in sorted(range(len(every)), key=bounds.__getitem__):
        if bounds[at] > times * fastest:
            break
        shape = every[at]
        for config in shaped(shape, c, request):
            made = _plan(plan, request, c, shape.tile, config)
            if _shares(made):
                made = timed(made)
                found.append((at, made))
                fastest = min(fastest, least_sure((made,), request))
    found.sort(key=lambda placed: placed[0])  # as they are enumerated: ties are the first's
    return _some((p for _, p in found), c, request)


def _tiles(c: Correlation, request: Request, widths: Widths | None = None) -> tuple[Tile, ...]:
    precision = request.precision
    if precision == "fp32_split" and not (c.empty or checkable(c.output[2])):
        raise unchecked(c.output[2:])
    return tiles(c, request.algorithm, precision, widths or widths_of(precision))


def _plan(plan: Callable[..., P], request: Request, c: Correlation, tile: Tile, config: Any) -> P:
    what = request.direction, request.problem, c, tile, request.points, request.precision
    return plan(*what, request.stored, config, request.device)


def _shares(plan: Offered) -> bool:
    """Whether every block of a cluster has a part of the sum."""
    return plan.config.split_k <= max(1, plan.steps)


def _some(plans: Iterable[P], c: Correlation, request: Request) -> list[P]:
    found = list(plans)
    if not found:
        what = request.config or request.algorithm
        raise ValueError(
            f"{what} does not fit a filter {c.filter[1]} high, {c.channels} channels and "
            f"{c.out_channels} output channels on {request.device.name}"
        )
    return found
