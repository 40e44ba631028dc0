"""ncu's table as rows."""

from __future__ import annotations

import pytest

from experiments.gpu.ncu import METRICS, NAMES, STALLS, read


def test_a_table_of_ncu_becomes_rows() -> None:
    names = ["ID", "Kernel Name", *NAMES]
    values = ["0", "winolab_reduce(Params)", *("1,234.5" for _ in METRICS), *("7" for _ in STALLS)]
    lines = [",".join(f'"{v}"' for v in line) for line in (names, ["" for _ in names], values)]
    (row,) = read("\n".join(["==PROF== Connected", *lines]))
    assert row["kernel_name"].startswith("winolab_reduce")
    assert row["issue"] == 1234.5
    assert row["seconds"] == pytest.approx(1.2345e-6)
    assert row["stalls"] == dict.fromkeys(STALLS, 7)


def test_no_table_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no table"):
        list(read("==ERROR== no permission"))
