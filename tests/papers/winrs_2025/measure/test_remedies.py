"""What is measured of Figure 12: the kernels' plans with one remedy off."""

from __future__ import annotations

from papers.winrs_2025.measure import remedies
from winolab.device import H100


def test_one_remedy_is_off_at_a_time() -> None:
    found = {case.without: case.plan(H100) for case in list(remedies.cases())[:5]}
    usual = found["all"]
    assert usual.segments > 1
    assert usual.workspace == 4 * usual.segments * usual.gradient.weights  # dw is no bucket
    assert found["plain sum of buckets"] == usual
    assert found["one segment"].segments == 1
    assert (usual.scaling, found["no scaling"].scaling) == ("l1", None)
    assert (usual.config.sums, found["FP32 sums"].config.sums) == (16, 32)
    assert {p.points for p in found.values()} == {"paper"}
