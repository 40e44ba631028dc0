"""Jobs that a GPU runs, a pretended one: the rows of the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.harness import reproduce
from experiments.harness.jobs import Job, run
from experiments.harness.outputs import Tally, Variant
from papers.im2col_winograd_2024 import accuracy as im2col_winograd
from tests.gpu.support.simulated import pretend
from winolab.gpu.codegen.simulated_tiles import FP64, STATES
from winolab.measure import FULL, Case
from winolab.ref.error.metrics import compare

CASE = Case("gamma:8:6:3@paper", "4x8x12x8", "4x3x3", "1", data="u12", sample=FULL)
VARIANTS = (
    Variant("typed", "published", digits=7),
    Variant("best", points="best"),
    Variant("direct", "direct"),
    Variant("tf32", "direct", precision="tf32"),
)
METRICS = ("mare", "relative_rms", "max_relative", "relative_bias", "layer_max")


def test_a_gpu_has_the_rows_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the oracle's order: two γ_K of FP64, K = 72 products, of which all are positive."""
    job = Job((("paper", "p"), ("table", "t")), CASE, VARIANTS, tail="relative", against="tf32",
              histogram=True)  # fmt: skip
    here = run([job])
    kernels = pretend(monkeypatch)
    there = run([job], gpu=True)
    assert {STATES, FP64} <= set(kernels)
    for one, other in zip(here, there, strict=True):
        for name in METRICS:
            assert abs(one[name] - other[name]) <= 2 * 72 * 2.0**-53
        for name in ("variant", "precision", "algorithm", "samples", "beyond", "bound_ratio"):
            assert one[name] == other[name]
        assert abs(np.subtract(one["histogram"], other["histogram"])).sum() <= 2


def test_shares_and_maxima_are_counted_where_all_outputs_are() -> None:
    job = Job((), CASE, VARIANTS, tail="relative", against="tf32")
    rows = {row["variant"]: row for row in run([job])}
    assert rows["tf32"]["beyond"] == 0
    limit = rows["tf32"]["layer_max"]
    assert limit == rows["tf32"]["max_relative"]
    y = job.case.problem.y_shape
    for name, row in rows.items():
        assert (row["beyond"] > 0) == (row["layer_max"] > limit)
        assert round(row["beyond"] * np.prod(y)) == row["beyond"] * np.prod(y), name


def test_figure_10_of_all_outputs_has_every_variants() -> None:
    for job in im2col_winograd.jobs_figure10(True):
        assert job.case.sample == FULL
        assert {variant.thin for variant in job.variants} == {1}
        assert job.against in {variant.name for variant in job.variants}
    counted = [{"variant": "typed", "sample": FULL, "beyond": share} for share in (0.25, 0.75)]
    assert im2col_winograd.beyond(counted) == 0.5


def test_chunks_and_threads_change_no_sum() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 2, 300_001)
    y = truth + rng.normal(0, 1e-6, truth.shape)
    one, several = Tally(), Tally(threads=3)
    for tally in (one, several):
        tally.add(y, truth)
    assert one.metrics() == several.metrics()
    assert one.histogram.tolist() == several.histogram.tolist()
    whole = compare(y, truth)
    assert abs(one.metrics()["mare"] / whole.mare - 1) <= 300_001 * 2.0**-52
    assert not Tally(binned=False)._counted((y, truth))[2]


def test_one_gpu_is_not_dasks() -> None:
    with pytest.raises(ValueError, match="--gpu with --dask: one GPU serves this process"):
        reproduce.measure([], True, 1, "local", gpu=True)
