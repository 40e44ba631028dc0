"""Plans by which an image's result has the same bits in every batch.

A kernel's config says in which order an output is summed. Where nothing else decides, naming the
algorithm and the config of one plan gives every batch one launch; else images are computed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from winolab.algorithm import Algorithm, Direct, Gamma, Winograd
from winolab.gpu.params import MATMUL
from winolab.gpu.planner.recast.computing import Choices, ComputedByAnother
from winolab.gpu.planner.request import PRECISIONS, Plan, Request

# Batches whose times count alike, and what the host takes at least for a call, in seconds: eight
# calls of 64 channels, 56² in FP16 took 76 µs (an H200, experiments/results/host.jsonl).
BATCHES, HOST = (1, 8, 32), 9e-6


def of_any_batch(
    request: Request, plan: Callable[[Request], Plan], candidates: Callable[..., Choices]
) -> Plan:
    """The plan of one image that is ``in_one_launch`` with others, or else the usual one, by which
    every image is computed alone: of these what takes the least time, the geometric mean over
    BATCHES. ``plan`` and ``candidates`` are the planner's."""
    request = replace(request, batch_invariant=False)
    found = plan(of_images(request, 1))
    least = math.prod(batch * max(found.predicted, HOST) for batch in BATCHES)

    for batch in BATCHES:
        asked = of_images(request, batch)
        # Plans that are not near are asked for where none of the first serves.
        for p in chain.from_iterable(candidates(asked, near).plans for near in (True, False)):
            if not in_one_launch(p):
                continue
            how = named(request, p)
            if all(each := [_alike(p, of_images(how, n), plan) for n in BATCHES]):
                seconds = math.prod(q.predicted for q in each if q)
                if seconds <= least and each[0]:
                    found, least = each[0], seconds
                break
    return found


def images_at_once(request: Request, planned: Callable[[Request], Plan]) -> tuple[int, Request]:
    """How many of a request's images a launch may compute for each to have the bits that it has in
    every batch, and the request for it; 0: each is a call of its own, by the usual plan."""
    one = planned(replace(of_images(request, 1), batch_invariant=True))
    request = replace(request, batch_invariant=False)
    if not in_one_launch(one):
        return 0, request
    request, images = named(request, one), request.problem.batch
    while images > 1 and not _alike(one, of_images(request, images), planned):
        images = -(-images // 2)
    return images, of_images(request, images)


def _alike(p: Plan, request: Request, plan: Callable[[Request], Plan]) -> Plan | None:
    """The plan of a request, if it sums as ``p`` does; None of others, and where so many images are
    more than a kernel, or the workspace's limit, has."""
    with suppress(ValueError):
        if order(found := plan(request)) == order(p):
            return found
    return None


def in_one_launch(plan: Plan) -> bool:
    """Whether images of any batch can be computed by its kernels with the bits that each has alone.

    Split products look at all images where they are scaled or checked, and at those of a block,
    which is summed again on FFMA units where a sum is not finite, unless they are ``sums_alone``; a
    library's order of sums depends on their number, and of a last round that is cut so does what is
    in it. Plans in phases have no name."""
    together = plan.precision == "fp32_split" and not plan.sums_alone
    looks = together or isinstance(plan, ComputedByAnother)
    return not looks and len(_parts(plan)) == 1 and MATMUL not in plan.shared()


def named(request: Request, plan: Plan) -> Request:
    """The request for what ``plan`` is, by name."""
    precision = next(name for name, units in PRECISIONS.items() if units == (plan.precision,))
    return replace(
        request,
        algorithm=algorithm_of(plan),
        config=plan.config,
        precision=precision,
        tolerance=None,
    )


def of_images(request: Request, batch: int) -> Request:
    """The request of so many images."""
    return replace(request, problem=replace(request.problem, batch=batch))


def order(plan: Plan) -> tuple[Any, ...]:
    """What says in which order and precision an output is summed."""
    return (
        plan.kernel, plan.precision, plan.config, plan.tiles, plan.points, plan.simulated,
        plan.out_dtype, _parts(plan),
    )  # fmt: skip


def _parts(plan: Plan) -> set[int]:
    """In how many parts its results are summed."""
    return {parts for share, parts in plan.split_sums if share}


def algorithm_of(plan: Plan) -> Algorithm:
    """What names a plan's; a family scales as it does."""
    if all(t.alpha == 1 for t in plan.tiles):
        return Direct()
    return (Gamma if len(plan.tiles) == 1 else Winograd)(plan.tiles, plan.points)
