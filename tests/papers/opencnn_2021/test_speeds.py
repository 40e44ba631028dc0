"""Speeds on GPUs: texts name the GPUs that the rows are of."""

from __future__ import annotations

from experiments.harness.tables import stored
from papers.opencnn_2021 import machine, speeds

LISTS = {"opencnn": ("fused2d", speeds.GPU), "authors": ("opencnn_authors", speeds.AUTHORS_GPU)}


def test_texts_name_the_gpus_of_the_rows() -> None:
    for listed, (source, name) in LISTS.items():
        found = {row["device"].split()[1] for row in stored(source) if row["list"] == listed}
        assert found == {name}


def test_table_1_is_of_the_gpu_that_was_measured_last() -> None:
    rows = stored("shared_memory")
    mine = [row for row in rows if row["device"] == f"NVIDIA {speeds.GPU}"]
    assert 0 < len(mine) < len(rows)
    assert machine.cells_table1("a", rows) == machine.cells_table1("a", mine)


def test_texts_say_whether_the_authors_code_ran_beside_ours() -> None:
    beside = {"beside_ours_tflops" in row for row in stored("opencnn_authors")}
    (same,) = beside
    assert ("the same run" if same else "another run") == speeds.AUTHORS_RUN
