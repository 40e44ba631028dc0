import pytest

from papers.dwm_2021 import costs as dwm_costs
from papers.dwm_2021.networks import networks
from winolab.ref.algebra.transforms import transforms


def test_speedups_of_the_abstract_are_the_extremes():
    """1.44 and 3.38: the least of Table 3 and the greatest of Table 4, exactly (6/5)², (6/4)³."""
    found = {
        row["column"]: row["holds"]
        for row in (*dwm_costs.table3(), *dwm_costs.table4())
        if "holds" in row
    }
    assert found["least speedup"]
    assert found["greatest speedup"]


def test_stride_two_saves_two_to_three_times_but_for_three_taps():
    claims = [
        row
        for row in (*dwm_costs.table3(), *dwm_costs.table4())
        if row["column"].startswith("stride 2")
    ]
    assert len(claims) == 9
    assert all(row["holds"] == (not row["column"].endswith(" 3 taps")) for row in claims)


def test_dwm_transforms_multiply_by_powers_of_two_only():
    for r in (2, 3):
        t = transforms(2, r, "paper")
        assert [dwm_costs.dense(m) for m in (t.AT, t.G, t.BT)] == [0, 0, 0]
    assert dwm_costs.dense(transforms(2, 5, "wincnn").G) > 0


@pytest.mark.parametrize("network", networks(), ids=lambda n: n.name)
def test_layers_give_the_published_multiply_adds(network):
    total = sum(problem.macs for problem in network.layers) / 1e9
    assert network.published is None or abs(total / network.published - 1) <= 0.04


def test_weight_update_differs():
    rows = {row["column"]: row["ours"] for row in dwm_costs.equation18()}
    assert rows["G Gᵀ ≠ E: largest deviation of an entry"] == 0.5


def test_memory_claims():
    rows = [row for row in dwm_costs.table14() if "holds" in row]
    assert len(rows) == 3
    assert all(row["holds"] for row in rows)
