"""Predicted time of nested Winograd's launches."""

from __future__ import annotations

import math

from winolab.device import H100
from winolab.gpu.families.nested.cut import Cut

# Of an H100, fitted to 707 calls of 118 cases (rms 3.4 %; throughput_variants.jsonl): seconds of a
# call's launches, of each part's after the first, of one about neighbouring rows of the filter, and
# for every state, which a thread of the transforms stores one after another.
CALL, PART, ASIDE, STATE = 17.3e-6, 9e-6, 3e-6, 0.268e-6
# Bytes a second of the transforms of input and output, of the filter's; up to CACHED bytes of each
# are in L2, and FASTER. Of what the products read and write.
INPUT, FILTER, PRODUCTS = 2.21e12, 2.37e12, 4.29e12
CACHED, FASTER = 14.7e6, 2.67
# Of an H200's faster memory these have that power: 21 calls, 0.99 to 1.04 of what they took
# ("an H200 by an H100's constants" in throughput_variants.jsonl).
MEMORY = 0.85
# Bytes of a filter that L2 still has when its rows have been described.
KEPT = 25e6
# Seconds of a stage's products: of each, of a column of U, of a row of U and V that L2 sends.
STAGE, COLUMN, ROW = 148e-9, 3.15e-9, 1.89e-9


def seconds(plan: Cut) -> float:
    """Seconds of all launches, for data that split products serve."""
    c, device = plan.correlation, plan.device
    memory = device.memory_rate**MEMORY
    cycles = device.clock * device.multiprocessors / H100.clock / H100.multiprocessors
    filter_ = 4 * c.channels * c.out_channels * math.prod(c.filter)
    stage = max(STAGE + COLUMN * plan.config.bm, ROW * plan.rows_stage) / cycles
    total = CALL + PART * (len(plan.parts) - 1) + ASIDE * c.rotated + STATE * plan.states
    total += _moved(filter_ + plan.transformed, FILTER * memory)
    for part in plan.parts:
        v, m = plan.moved(len(part))
        x = 4 * len(part) * math.prod(c.input) * c.channels
        y = 4 * len(part) * math.prod(c.output) * c.out_channels
        described = 0 if part.start else filter_ * (2 if filter_ > KEPT and not c.rotated else 1)
        rounds = -(-plan.work_tiles(len(part)) // device.multiprocessors)
        total += _moved(x + v + described, INPUT * memory) + _moved(m + y, INPUT * memory)
        read = (v + plan.transformed + m) / (PRODUCTS * memory)
        total += max(rounds * plan.mean_steps * stage, read)
    return c.groups * total


def _moved(size: float, bandwidth: float) -> float:
    """Seconds of a transform that reads and writes so many bytes."""
    cached = min(size, CACHED)
    return (size - cached + cached / FASTER) / bandwidth
