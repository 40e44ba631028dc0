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
from experiments.gpu.targets.table import TARGETS

TITLE = "On a GPU"
TABLES = (
    TARGETS,
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
    "throughput_variants": "python -m experiments.measure.picks STEP",
}
