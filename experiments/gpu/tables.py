"""The tables that a GPU measured, and what measures them there."""

from __future__ import annotations

from experiments.gpu import (
    bounds,
    counters,
    devices,
    frontier,
    gradients,
    losses,
    variants,
)
from experiments.gpu.samples import DIRECTIONS
from experiments.gpu.targets.layers import LAYERS
from experiments.gpu.targets.table import TARGETS

TITLE = "On a GPU"
TABLES = (
    TARGETS,
    LAYERS,
    bounds.BOUNDS,
    bounds.GRADIENTS,
    losses.LOSSES,
    devices.DEVICES,
    frontier.FRONTIER,
    counters.COUNTERS,
    variants.VARIANTS,
    gradients.GRADIENTS,
)

# What writes these files, on a GPU.
COMMANDS = {
    "throughput": "python -m experiments.measure.throughput",
    "gpu_errors": "python -m experiments.measure.errors",
    "host": "python -m experiments.measure.host_cost",
    "sanitizer": "python -m tests.gpu.sanitize --rows experiments/results/sanitizer.jsonl",
    "counters": "python -m experiments.measure.counters",
    "nested": "python -m experiments.measure.nested",
    "end_to_end": "python -m experiments.networks.end_to_end",
    "memory_order": "python -m experiments.measure.memory_order",
    **{
        name: f"python -m experiments.measure.layers {name}"
        for name in ("depthwise", "strided", "grouped", *(f"networks_{way}" for way in DIRECTIONS))
    },
    "throughput_variants": "python -m experiments.measure.picks STEP",
}
