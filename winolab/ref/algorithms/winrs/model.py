"""How long a WinRS plan takes: its eq. 8, T = C_time/V_comp + C_data/V_band, by waves of blocks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.ref.algorithms.winrs.kernels import STEP
from winolab.ref.algorithms.winrs.segments import Segment

# Share of the issue slots that a multiprocessor's blocks fill, by how many are resident. The paper
# has ratios of times only: with two blocks the share is assumed, with one it is fitted beside that
# to the averages of its Table 3, with the model of cuDNN's kernels (papers/winrs_2025/fits.py).
FILLED = {1: 0.72, 2: 0.85}
# What a block costs beyond its main loop (prologue, output transform): assumed. Table 3 hardly sees
# it: from 0 to 9000 the fit's residual changes by 1 %.
BLOCK_CYCLES = 6000
LAUNCH = 4e-6  # seconds, of each kernel


def seconds(
    problem: Problem,
    segments: Sequence[Segment],
    device: Device,
    filled: Mapping[int, float] = FILLED,
) -> float:
    """Predicted seconds of a filter gradient: main kernels by waves, traffic, then the reduction.

    A device without a known bandwidth counts no traffic. ``filled`` replaces FILLED.
    """
    inputs, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    kinds = Counter((s.kernel, s.size) for s in segments)
    work = longest = 0.0
    blocks = 0
    steps = -(-problem.batch // STEP)
    for (kernel, size), count in kinds.items():
        bn, bm = kernel.block
        taps = math.prod(problem.filter) // kernel.tile.n
        each = problem.groups * -(-outputs // bn) * -(-inputs // bm) * taps
        *leading, width = size
        units = math.prod(leading) * width // kernel.tile.r
        cycles = units * steps * kernel.step_cycles(device) + BLOCK_CYCLES
        cycles /= filled[kernel.resident]
        work += count * each * cycles
        longest = max(longest, cycles)
        blocks += count * each
    rounds = -(-blocks // device.multiprocessors)
    compute = max(longest, rounds * work / max(1, blocks)) / device.clock
    narrow = segments[0].kernel.precision == "fp16"
    weights = math.prod(problem.w_shape)
    moved = (2 if narrow else 4) * (math.prod(problem.x_shape) + math.prod(problem.y_shape))
    moved += 4 * weights * (len(segments) + (len(segments) + 1 if len(segments) > 1 else 0))
    traffic = moved / device.bandwidth if device.bandwidth else 0.0
    launches = len({s.kernel for s in segments}) + (len(segments) > 1)
    return compute + traffic + launches * LAUNCH
