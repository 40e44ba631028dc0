"""How fast the reference simulates a sampled layer of Table 3."""

from __future__ import annotations

from collections.abc import Callable

from experiments.harness.jobs import Row
from experiments.harness.outputs import Outputs
from papers.im2col_winograd_2024.accuracy import EXACT, jobs_table3


def rates(measure: Callable[..., dict[str, float]], rounds: int) -> list[Row]:
    """Seconds of the layer, and its simulated multiply-adds a second."""
    job = next(
        job
        for job in jobs_table3(False)
        if job.case.input == "32x32x32x256" and job.case.algorithm.startswith("gamma:16:8:9")
    )
    outputs = Outputs(job.case, job.tiles, job.channels)
    layer = measure(rounds, layer=lambda: list(outputs.run([EXACT])))["layer"]
    tiles = sum(len(ids) for _, ids in outputs.sample.tiles)
    macs = tiles * 16 * 9 * 256 * job.channels
    return [
        _row("a sampled row of Table 3: Γ16(8,9), 256 channels", layer, "s"),
        _row("its simulated multiply-adds", macs / layer / 1e6, "1e6 multiply-adds/s"),
    ]


def _row(what: str, value: float, unit: str) -> Row:
    return {"what": what, "value": value, "unit": unit, "target": None, "met": None}
