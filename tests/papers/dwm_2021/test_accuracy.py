import numpy as np
import pytest

from experiments.harness.tables import select
from papers.dwm_2021 import accuracy as dwm
from winolab.ref.algorithms import convolution


def block(table="table1", ndim=2, kernel=5, outputs=4, channels=4):
    return dwm.Block(table, ndim, kernel, outputs, channels, 2, "test", 3, ("fp32", "fp16"))


def test_windows_are_convolution():
    one = block()
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s) for s in (one.problem.x_shape, one.problem.w_shape))
    found = one._direct(x, w, "fp64")
    assert np.abs(found - convolution.forward(x, w, one.problem)).max() <= 1e-13


def test_rows_say_how_to_run_them_again():
    rows = block().run()
    assert {row["column"] for row in rows} == {
        f"{name} {precision}" for name in dwm.ALGORITHMS for precision in dwm.PRECISIONS
    }
    again = block().run()
    assert rows == again


def test_what_is_not_finite_is_counted_and_has_no_mse():
    """F(2×2×2, 9×9×9) in FP16: the transforms overflow, whatever the data."""
    rows = block("table2", 3, 9, 2, 1).run()
    (broken,) = select(rows, column="winograd fp16")
    assert broken["not_finite"] > 0
    assert broken["mse"] is None
    (kept,) = select(rows, column="dwm fp16")
    assert kept["not_finite"] == 0


@pytest.mark.parametrize("table", [dwm.TABLE1, dwm.TABLE2, dwm.TABLE7])
def test_every_table_has_blocks(table):
    found = table.jobs(False)
    assert {job.table for job in found} == {table.name}
    assert max(job.outputs**job.ndim for job in found) <= 64 * 4
