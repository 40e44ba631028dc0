import numpy as np
import pytest

from experiments.harness.jobs import Row
from experiments.harness.tables import rows_of, select
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


def kept(table: dwm.Table) -> dict[str, bool | None]:
    """Whether the claims hold of the kept rows, by their text."""
    return {cell.column: cell.agrees for cell in table.cells(rows_of(table)) if cell.claim}


@pytest.mark.parametrize("table", [dwm.TABLE1, dwm.TABLE2])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_winograd_loses_more_from_five_taps_on_and_the_same_at_three(table, precision: str) -> None:
    rows, name = rows_of(table), precision.upper()
    assert kept(table)[f"DWM {name} loses less than Winograd {name}, kernels above 3"]
    three = [[row["mse"] for row in select(rows, kernel=3, column=f"{algorithm} {precision}")]
             for algorithm in ("winograd", "dwm")]  # fmt: skip
    assert three[0] == three[1]
    assert three[0]


@pytest.mark.parametrize("mse", [1e3, None])
def test_one_layer_in_which_dwm_loses_more_is_enough(mse: float | None) -> None:
    """A mean over layers, or over what is finite, would not tell."""
    rows = rows_of(dwm.TABLE1)
    text = "DWM FP16 loses less than Winograd FP16, kernels above 3"
    setting = rows[0]["setting"]

    def spoiled(row: Row) -> Row:
        hit = (row["kernel"], row["setting"], row["column"]) == (5, setting, "dwm fp16")
        return row | {"mse": mse, "not_finite": 0.0 if mse else 0.1} if hit else row

    (cell,) = (c for c in dwm.TABLE1.cells([*map(spoiled, rows)]) if c.column == text)
    assert cell.agrees is False


def test_winograd_s_own_error_is_what_worsens_with_dimensions_and_taps() -> None:
    """DWM's getting better does not make Winograd worse."""
    rows = rows_of(dwm.TABLE7)
    text = "Winograd worsens with every dimension, 7 taps: least growth"
    flat = [r | {"mse": 1e-6 * r["rms_truth"] ** 2} if r["column"] == "winograd fp32" else r
            for r in rows]  # fmt: skip
    better = [r | {"mse": r["mse"] * 1e-3 ** r["ndim"]} if r["column"] == "dwm fp32" else r
              for r in flat]  # fmt: skip
    (cell,) = (c for c in dwm.TABLE7.cells(better) if c.column == text)
    assert cell.agrees is False
    assert kept(dwm.TABLE7)[text]
