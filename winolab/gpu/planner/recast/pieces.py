"""DWM on a GPU: its pieces as requests of their own, each for kernels of stride and dilation 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from winolab.algorithm import Algorithm, Direct, Gamma, Omega, Winograd
from winolab.gpu.planner.correlation import check
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms.dwm.parts import Part, parts


@lru_cache(maxsize=256)  # a call asks for them each time
def planned(request: Request) -> tuple[tuple[Part, Algorithm, Plan], ...]:
    """The pieces of a request whose algorithm has some, each with the algorithm and the plan that
    run it.

    Raises ValueError for more than three dimensions and for a workspace limit that a piece's direct
    products do not keep.
    """
    check(request.problem)
    algorithm = request.algorithm
    if algorithm is None or not algorithm.in_pieces:
        raise ValueError(f"{algorithm} has no pieces; expected a dwm, such as dwm:3:2")
    pieces = parts(request.problem, algorithm, "fp32", request.direction)
    return tuple((part, *plan_of(part, algorithm, request)) for part in pieces)


def plan_of(part: Part, algorithm: Algorithm, request: Request) -> tuple[Algorithm, Plan]:
    """What runs a piece: nested in the last two dimensions where it has a tile in both and a kernel
    does so, tiled along the last alone where one does that, or else direct."""
    return _plan(replace(request, problem=part.problem), _named(part, algorithm, request))


def _named(part: Part, algorithm: Algorithm, request: Request) -> Iterator[Algorithm]:
    """What may run a piece, the most tiled first."""
    gradient = request.direction == "backward_filter"
    last = [t.exchanged if t and gradient else t for t in part.tiles[-2:]]
    tiles, how = [t for t in last if t], (algorithm.points, algorithm.scaling)
    if len(tiles) == 2:
        yield Winograd(tuple(tiles), *how)
    if last[-1]:
        yield (Omega if gradient else Gamma)((last[-1],), *how)
    yield Direct()


def _plan(request: Request, named: Iterator[Algorithm]) -> tuple[Algorithm, Plan]:
    """The first that a kernel runs. Raises what the last does where none is."""
    refused = ValueError()
    for algorithm in named:
        try:
            return algorithm, plan(replace(request, algorithm=algorithm))
        except ValueError as error:
            refused = error
    raise refused
