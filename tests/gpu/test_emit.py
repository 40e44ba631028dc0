from __future__ import annotations

from winolab.gpu.emit import kernel, unit
from winolab.ref.transforms import transforms


def test_a_unit_has_constants_and_exact_programs_before_the_kernels() -> None:
    program = transforms(6, 3).programs.BT
    source = unit("F(6,3)", {"N": 6}, {"transform": program}, ("pipeline", "gamma"))
    parts = ["// F(6,3)", "constexpr int N = 6;", program.cuda("transform")]
    places = [source.index(part) for part in (*parts, kernel("pipeline"), kernel("gamma"))]
    assert places == sorted(places)
