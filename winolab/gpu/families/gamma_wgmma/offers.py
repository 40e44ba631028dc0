"""Which plans of Γ by wgmma are built: those whose least time is near the fastest's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from winolab.gpu.families.gamma.offers import P, planned, shares, some, tiles_of
from winolab.gpu.families.gamma_wgmma.config import shaped, shapes
from winolab.gpu.families.gamma_wgmma.cost import least_seconds
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.ranking import least_sure
from winolab.gpu.planner.request import Request


def promising(
    kind: type[P], timed: Callable[[P], P], request: Request, times: float
) -> Iterable[P]:
    """Plans with their times, of every tile and block shape whose time may be at most so many
    times the fastest's.

    All where ``times`` is infinite. Shapes are walked by the least time that they can take; what
    the ranking may pass over cuts nothing short. Raises ValueError where none can run.
    """
    c = Correlation.of(request.problem, request.direction)
    every = [s for tile in tiles_of(c, request) for s in shapes(tile, c, request)]
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
            made = planned(kind, request, c, shape.tile, config)
            if shares(made):
                made = timed(made)
                found.append((at, made))
                fastest = min(fastest, least_sure((made,), request))
    found.sort(key=lambda placed: placed[0])  # as they are enumerated: ties are the first's
    return some((p for _, p in found), c, request)
