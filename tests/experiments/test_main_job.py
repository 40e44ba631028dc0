"""The main job's parts: sampled outputs, tallies, rows, cells; and its command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.harness.facts import ROOT
from experiments.harness.jobs import Job, run
from experiments.harness.outputs import MOMENTS, Outputs, Tally, Variant
from experiments.harness.reproduce import chosen
from experiments.harness.tables import interval, select, stored
from experiments.harness.verdicts import Verdict, near
from experiments.points import tables as points_study
from papers.im2col_winograd_2024 import accuracy as im2col_winograd
from papers.lavin_gray_2016 import accuracy as lavin_gray
from winolab.measure import DATA, FULL, Case
from winolab.ref.algorithms import convolution
from winolab.ref.error.metrics import compare

SMALL = Case("gamma:8:6:3@paper", "2x7x12x8", "4x3x3", "1", data="u12", sample=FULL)
VARIANTS = (
    Variant("exact", "published"),
    Variant("typed", "published", digits=7),
    Variant("best", points="best"),
    Variant("direct", "direct"),
    Variant("tf32", "direct", precision="tf32"),
)


def test_a_tally_of_pieces_is_the_comparison_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 2, (5, 40)) * rng.choice([-1, 1], (5, 40))
    y = truth + rng.normal(0, 1e-6, truth.shape)
    tally = Tally()
    for part in range(5):
        tally.add(y[part], truth[part])
    whole, metrics = compare(y, truth), tally.metrics()
    for name in ("mare", "relative_rms", "max_abs", "max_relative", "mse", "bias", "relative_bias"):
        assert abs(metrics[name] / getattr(whole, name) - 1) <= 1e-9
    assert metrics["samples"] == tally.histogram.sum() == truth.size


def test_nan_stays_nan_in_a_tally() -> None:
    tally = Tally()
    tally.add(np.array([1.0, np.nan]), np.array([1.0, 1.0]))
    tally.add(np.array([1.0]), np.array([1.0]))
    assert all(math.isnan(v) for k, v in tally.metrics().items() if k != "samples")


def test_all_outputs_are_the_layer_and_their_truth_is_the_convolution() -> None:
    outputs = Outputs(SMALL, 4, 2)
    y = convolution.forward(outputs.x, outputs.w, outputs.problem)
    truths = {v: truth for v, _, truth in outputs.run(VARIANTS)}
    for truth in truths.values():
        assert truth.size == y.size
        np.testing.assert_allclose(np.sort(truth.ravel()), np.sort(y.ravel()), rtol=1e-13)


def test_direct_variants_are_thinned_at_the_same_positions() -> None:
    outputs = Outputs(SMALL, 4, 2)
    thin = (VARIANTS[0], replace(VARIANTS[3], thin=5))
    (_, _, every), (_, _, some) = outputs.run(thin)
    np.testing.assert_array_equal(some, every[::5])


@pytest.mark.parametrize("data", DATA)
def test_errors_keep_to_their_bounds_and_near_their_predictions(data: str) -> None:
    """Padding, which predictions leave out, is 0; four filters share their rounding."""
    outputs = Outputs(replace(SMALL, input="2x14x38x32", padding="0", data=data), 16, 4)
    tallies = {variant: Tally() for variant in VARIANTS}
    for variant, y, truth in outputs.run(VARIANTS):
        tallies[variant].add(y, truth)
    for variant, tally in tallies.items():
        checked, _, _ = outputs.bounded(variant)
        assert checked.worst_ratio <= 1
        expected = outputs.predicted(variant).relative_rms
        assert 0.6 <= tally.metrics()["relative_rms"] / expected <= 1.6


@pytest.mark.parametrize("data", DATA)
def test_the_moments_are_those_of_the_data(data: str) -> None:
    x, _ = replace(SMALL, input="8x64x64x32", data=data).tensors()
    values = x.astype(np.float64)
    error = 5 / math.sqrt(values.size)  # standard errors of mean and variance, five of them
    assert abs(values.mean() - MOMENTS[data].mean) <= error
    assert abs(values.var() / MOMENTS[data].variance - 1) <= 5 * error


def test_a_job_s_rows_are_the_same_wherever_it_runs() -> None:
    job = Job((("paper", "p"), ("table", "t")), replace(SMALL, sample="96"), VARIANTS, 4, 2)
    here, there = run([job], 1), run([job, job], 2)
    timeless = [{k: v for k, v in row.items() if k != "seconds"} for row in here]
    for i in (0, len(here)):
        again = there[i : i + len(here)]
        assert [{k: v for k, v in row.items() if k != "seconds"} for row in again] == timeless
    assert all(Case.of_row(row) for row in here)
    json.dumps(here, allow_nan=False)


def test_the_paper_s_shapes_have_cases() -> None:
    jobs = im2col_winograd.jobs_table3(False)
    assert len(jobs) == 36 * im2col_winograd.SEEDS
    for job in jobs:
        shape = dict(job.labels)["shape"]
        assert "x".join(map(str, job.case.problem.y_shape)) == shape
    assert len(lavin_gray.jobs(False)) == 15
    for job in lavin_gray.jobs(True):
        assert job.case.sample == FULL


def test_an_interval_covers_the_mean() -> None:
    rng = np.random.default_rng(1)
    held = [
        low <= 0 <= high
        for _, low, high in (interval(rng.normal(size=4).tolist()) for _ in range(500))
    ]
    assert 430 <= sum(held) <= 470  # 450 expected, 3 standard deviations of 6.7
    assert interval([2.0]) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    "table",
    [
        lavin_gray.TABLE4,
        im2col_winograd.TABLE3,
        im2col_winograd.FIGURE10,
        im2col_winograd.H100,
        points_study.ROWS,
        points_study.LAYERS,
    ],
    ids=lambda table: table.key,
)
def test_committed_rows_hold_what_the_report_says(table) -> None:
    """No error above its bound, intervals enclose, verdicts as recorded."""
    rows = select(stored(table.paper), table=table.name)
    assert rows
    assert all(row["bound_ratio"] <= 1 for row in rows if "bound_ratio" in row)
    cells = table.cells(rows)
    assert cells
    mine = [c for c in cells if c.verdict is not Verdict.NOT_REPRODUCED]
    assert all(cell.low <= cell.ours <= cell.high for cell in mine)


def test_table_3_has_one_rule_for_every_kernel_and_one_mode_for_gemm() -> None:
    """Within 6.8 %, by which the authors' kernels run again differ, and TF32: not the nearer."""
    assert im2col_winograd.tolerance() == pytest.approx(1 - 5.21 / 5.59)
    cells = im2col_winograd.cells_table3(select(stored("im2col_winograd_2024"), table="table3"))
    judged = [c for c in cells if c.agrees is not None]
    assert Counter(c.column for c in judged) == {"constants of 7 digits": 36, "CuGEMM, TF32": 36}
    for c in judged:
        assert c.accepted == near(c.paper or 0, im2col_winograd.tolerance())
    found = {
        (kind, column): sum(
            bool(c.agrees) for c in judged if c.where.startswith(kind) and column in c.column
        )
        for kind in ("Γ8", "Γ16")
        for column in ("digits", "CuGEMM")
    }
    assert found == {
        ("Γ8", "digits"): 10, ("Γ16", "digits"): 12, ("Γ8", "CuGEMM"): 5, ("Γ16", "CuGEMM"): 3,
    }  # fmt: skip


def test_what_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.harness.reproduce", "fft_2013"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "unknown paper 'fft_2013'; expected one of" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(ValueError, match=r"^im2col_winograd_2024 has no 'table9'"):
        chosen("im2col_winograd_2024", "table9")


def test_the_main_job_leaves_out_only_the_long_tables() -> None:
    main, every = chosen(None, None, every=False), chosen(None, None)
    long = [table for table in every if table.long]
    assert [table for table in every if table not in main] == long
    for table in long:
        assert chosen(table.paper, table.name, every=False) == [table]


def test_what_an_interrupted_call_had_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are kept as they come, until who asked for them has written what he wants: a call that
    was stopped while the report was drawn began anew."""
    jobs = [Job((), replace(SMALL, seed=seed), VARIANTS[:1]) for seed in range(3)]
    kept, ran, compute = tmp_path / "unfinished.jsonl", [], Job.run

    def interrupted(job: Job) -> list:
        ran.append(job)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return compute(job)

    monkeypatch.setattr(Job, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(jobs, kept=kept)
    assert len(kept.read_text().splitlines()) == 2
    rows = run(jobs, kept=kept)
    assert ran[3:] == ran[2:3]
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert run(jobs, kept=kept) == rows
    assert len(ran) == 4
