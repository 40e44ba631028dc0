"""Filter gradients: the plan of a family for a problem, who shares its work, a plan on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, Device
from winolab.gpu import driver
from winolab.gpu.families.wgrad_direct.chunks import Cost, Shares, leveled, lpt_order
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.call import kernels_of
from winolab.ref.algorithms import convolution

SMALL = Problem.of((2, 9, 9, 64), (64, 3, 3, 64))


def asked(
    plans: Callable[[Request], Iterable[Any]],
    precision: str,
    problem: Problem = SMALL,
    text: str = "",
    device: Device = H100,
    **options: Any,
) -> Any:
    """The first of the ``plans`` that a family has for a problem."""
    algorithm = parse_algorithm(text) if text else None
    return next(
        iter(plans(Request(problem, "backward_filter", device, algorithm, precision, **options)))
    )


# ``shared``: nothing is, all by blocks of a stage or more, what one wave leaves, all in halves.
SHARES = ((4, 0), (1 << 20, 50), (4, 3), (4, -2))


def shared(p: Any, multiprocessors: int, sharing: int) -> Any:
    """A plan by columns on so many multiprocessors, so many of which share what is left; 0: none
    does; below 0: all work tiles are shared, in so many parts each or as many as have a stage."""
    work_tiles = p.shares.work_tiles
    stages = p.columns.stages(work_tiles)
    cost = Cost(1.0, 0.0, 4 * p.config.n * p.config.bi * p.config.bo)

    def made(shared: int, sharing: int, parts: int, *tables: Any) -> Any:
        workspace = cost.workspace(shared, sharing)
        of = multiprocessors, work_tiles, work_tiles - shared, sharing, parts, workspace, 0.0
        return replace(p, shares=Shares(*of, *tables))

    parts = min(-sharing, p.columns.shortest)
    if sharing == 0 or parts == 1:
        return made(0, 0, 0, lpt_order(stages, multiprocessors, cost).order)
    if sharing < 0:
        return made(work_tiles, parts * work_tiles, parts)
    rest = work_tiles % multiprocessors
    if not rest:
        return made(0, 0, 0)
    waves = lpt_order(stages[: work_tiles - rest], multiprocessors, cost)
    for blocks in range(sharing, 0, -1):
        if level := leveled(
            stages[work_tiles - rest :], work_tiles - rest, waves.loads[:blocks], cost
        ):
            return made(rest, blocks, 0, waves.order, level[0])
    raise AssertionError("a stage at least falls to one block")


def gradient_on_gpu(
    plan: Any, x: np.ndarray, dy: np.ndarray, before: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """dw, ``before`` or NaN before, and the workspace's bytes in the end, all ones before."""
    cp = driver.cupy()
    dw = np.full(plan.problem.w_shape, np.nan, "float32") if before is None else before
    arrays = [cp.asarray(array) for array in (x, dy, dw)]
    a, b, out = (
        ArrayLayout.fresh(array.shape).view(array.data.ptr, filter=i == 2)
        for i, array in enumerate(arrays)
    )
    workspace = cp.full(max(4, plan.workspace), 0xFF, "uint8")
    plan.launch(kernels_of(plan, 0), a, b, out, workspace.data.ptr, 0)
    return arrays[2].get(), workspace.get()


def sums_added_again(
    compute: Callable[[np.ndarray, np.ndarray], np.ndarray], problem: Problem, x: np.ndarray,
    dy: np.ndarray, nan: tuple[int, ...], large: tuple[int, ...],
) -> None:  # fmt: skip
    """In FP32 an infinity, whose low part is NaN, gives what FFMA gives, in the taps that meet it
    alone; a number that rounds up to one a finite sum. ``nan`` and ``large``: places of such of dy,
    beside channels 3 and 20."""
    largest = np.finfo("float32").max
    x = np.abs(x) / 64
    dy[0, 2, 4, 3], dy[nan], dy[large] = np.inf, np.nan, largest
    dy[0, 1, 1, 20], dy[0, 3, 3, 20] = np.inf, -np.inf
    found, channel = compute(x, dy), large[-1]
    with np.errstate(invalid="ignore"):
        exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    for of in (np.isposinf, np.isnan):
        assert (of(found) == of(exact)).all()
    assert {*np.nonzero(~np.isfinite(found))[0]} == {3, nan[-1], 20}
    assert (np.abs(found[channel] - exact[channel]) <= 2.0**-13 * np.abs(exact[channel])).all()
    assert np.abs(exact[channel]).min() > largest * 1e-9
