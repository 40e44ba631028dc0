"""Which plans of Γ by wgmma are built: those whose least time is near the fastest's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import itemgetter

from winolab.gpu.families.gamma.offers import P, planned, shares, some, tiles_of
from winolab.gpu.families.gamma_wgmma.config import Shape, shaped, shapes
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
    every: list[tuple[float, int, Shape, int]] = []  # least time, place, shape and its split_k
    for tile in tiles_of(c, request):
        for shape in shapes(tile, c, request):
            bounds = [0.0] * len(shape.splits)
            if times < math.inf:
                bounds = least_seconds(shape, c, request)
            for split_k, bound in zip(shape.splits, bounds, strict=True):
                every.append((bound, len(every), shape, split_k))
    found: list[tuple[int, P]] = []
    fastest = math.inf
    for bound, at, shape, split_k in sorted(every, key=itemgetter(0)):
        if bound > times * fastest:
            break
        for config in shaped(shape, split_k, c, request):
            made = planned(kind, request, c, shape.tile, config)
            if shares(made):
                made = timed(made)
                found.append((at, made))
                if made.predicted < fastest:  # only then is its workspace asked for
                    fastest = min(fastest, least_sure((made,), request))
    found.sort(key=itemgetter(0))  # as they are enumerated: ties are the first's
    return some((p for _, p in found), c, request)
