import pytest

from papers.dwm_2021 import costs as dwm_costs
from papers.dwm_2021.networks import networks
from winolab.ref.algebra.transforms import transforms


def claims(table) -> dict[str, bool]:
    """By its text, whether a claim holds."""
    rows = [row for job in table.jobs(False) for row in job.run()]
    return {c.column: c.agrees for c in table.cells(rows) if c.claim}


def test_speedups_of_the_abstract_are_the_extremes():
    """1.44 and 3.38: the least of Table 3 and the greatest of Table 4, (6/5)², (6/4)³."""
    assert claims(dwm_costs.TABLE3)["least speedup"]
    assert claims(dwm_costs.TABLE4)["greatest speedup"]


def test_stride_two_saves_two_to_three_times_where_it_does():
    """The claim's range is the range: 1.96 and 1.92 are outside of it."""
    found = claims(dwm_costs.TABLE3) | {f"3-D {k}": v for k, v in claims(dwm_costs.TABLE4).items()}
    held = {text for text, holds in found.items() if "stride 2" in text and holds}
    two = "stride 2 by 2 to 3 times:"
    assert held == {
        f"{two} 5 taps", f"{two} 11 taps", *(f"3-D {two} {taps} taps" for taps in (5, 7, 9)),
    }  # fmt: skip


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
    """Nine taps in 2-D and the larger maps of 7×7×7 are against what the paper saw."""
    found = claims(dwm_costs.TABLE14)
    assert len(found) == 5
    assert {text for text, holds in found.items() if not holds} == {
        "a larger kernel needs relatively more, 2-D: least growth of a step",
        "7×7×7 needs relatively less than 5×5×5, as outputs shrink, 28×28×28",
    }
