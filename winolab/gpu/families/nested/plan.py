"""Nested Winograd F(n×n, r×r) on Tensor Cores: which tiles, blocks and parts of the batch run.

Forward and backward data in two dimensions, in split FP32, of unit stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from winolab.algorithm import Algorithm
from winolab.gpu.families.nested import cost as nested_times
from winolab.gpu.families.nested.launch import NestedPlan
from winolab.gpu.families.nested.tiles import (
    MOST_STATES,
    ROW_BYTES,
    Config,
    Pair,
    block_outputs,
    multiplications,
    pairs,
    serving,
)
from winolab.gpu.planner.correlation import Correlation, unserved
from winolab.gpu.planner.fallback import checkable, unchecked
from winolab.gpu.planner.ranking import loses
from winolab.gpu.planner.request import Request

ARCHITECTURE = (9, 0)  # wgmma is 9.0's alone
MOST_STAGES = 8
OFFERED = 3  # plans whose error is admitted
PROMISING = 2.0  # times the fewest multiplications of any tiles, for tiles to be considered
SHARE = 4  # a workspace without a limit takes at most such a part of the device's memory


def plans(request: Request) -> Iterator[NestedPlan]:
    """The fastest predicted plans, down to the OFFERED-th that loses no more than sums in FP32; of
    a named algorithm all. Raises ValueError where none can run, and says why.
    """
    device, algorithm = request.device, request.algorithm
    if algorithm and algorithm.kind != "winograd":
        return  # other families say what they run
    if algorithm and algorithm.scaling:
        raise unserved(algorithm)
    if device.compute_capability != ARCHITECTURE:
        raise request.unfit("nested Winograd by wgmma needs {}.{}".format(*ARCHITECTURE))
    c = Correlation.of(request.problem, request.direction)
    if c.input[0] * c.filter[0] != 1 or min(c.filter[1:]) < 2 or c.empty or not c.channels:
        raise ValueError("nested Winograd on Tensor Cores has two dimensions, of two taps and more")
    asked = request.config_of(Config)
    shapes = [v for v in _configs(request, c) if (asked or v) == v]
    tiles = [t for t in _tiles(c, algorithm) if checkable(_outputs(c, t))]
    if not tiles:
        raise unchecked(c.output[1:])
    limit = request.workspace_limit
    limit = device.memory // SHARE if limit is None else limit
    every = [_plan(request, c, *of, limit) for of in product(tiles, shapes)]
    found = sorted((p for p in every if isinstance(p, NestedPlan)), key=lambda p: p.predicted)
    if not found:
        short = [needed for needed in every if isinstance(needed, int)]
        if not short:
            raise ValueError(
                "nested Winograd's kernels count neither as many channels nor as large images as "
                "these; use gamma"
            )
        raise ValueError(
            f"nested Winograd needs a workspace of {min(short)} B at least; the limit is {limit} "
            "B: raise it, or use gamma"
        )
    accurate = 0
    for p in found:
        yield p
        accurate += not algorithm and not loses(p)
        if accurate == OFFERED:
            return


def _outputs(c: Correlation, tiles: Pair) -> int:
    """Outputs of a channel, in the first tile of a map."""
    return math.prod(min(t.n, size) for t, size in zip(tiles, c.output[1:], strict=True))


def _tiles(c: Correlation, algorithm: Algorithm | None) -> Iterator[Pair]:
    """What is named, or what multiplies little enough to be considered."""
    filters = c.filter[1], c.filter[2]
    every = list(pairs(filters))
    if algorithm is None:
        most = PROMISING * multiplications(every[0], filters)
        square = filters[0] == filters[1] and c.output[1] == c.output[2]
        for at, (first, second) in enumerate(every):
            mirrored = square and (second, first) in every[:at]
            if not mirrored and multiplications((first, second), filters) <= most:
                yield first, second
        return
    if len(algorithm.tiles) != 2:
        raise ValueError(f"{algorithm}: the CUDA kernels of winograd have two dimensions")
    for tile, taps in zip(algorithm.tiles, filters, strict=True):
        if tile not in serving(taps):
            known = ", ".join(map(str, serving(taps)))
            raise ValueError(f"{algorithm}: no CUDA kernel has {tile} for {taps} taps, but {known}")
    first, second = algorithm.tiles
    if (first, second) not in every:
        raise ValueError(f"{algorithm}: the CUDA kernels have up to {MOST_STATES} states")
    yield first, second


def _configs(request: Request, c: Correlation) -> Iterator[Config]:
    """Block shapes, with as many stages as have room."""
    vectors = {"xvec": c.channels, "yvec": c.out_channels}
    aligned = {k: 2 if request.aligned and n % 2 == 0 else 1 for k, n in vectors.items()}
    for sums in block_outputs(c.out_channels):
        stage = Config(*sums, 1).shared_memory
        yield Config(*sums, min(request.device.shared_memory // stage, MOST_STAGES), **aligned)


def _plan(
    request: Request, c: Correlation, tiles: Pair, config: Config, limit: int
) -> NestedPlan | int | None:
    """The fewest parts of the batch that stay within the limit; where not one image does, the bytes
    that it needs, None where it has more than is counted."""
    images = c.batch
    while True:
        found = NestedPlan(
            request.direction, request.problem, c, tiles, request.points, config, request.device,
            images,
        )  # fmt: skip
        counted = max(found.sizes["v"] // ROW_BYTES, found.sizes["m"] // 8) < 1 << 31
        counted = counted and found.steps < 1 << 16
        if counted and found.workspace <= limit:
            return replace(found, predicted=nested_times.seconds(found))
        if images == 1:
            return found.workspace if counted else None
        images = -(-images // 2)
