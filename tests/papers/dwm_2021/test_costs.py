from fractions import Fraction
from itertools import pairwise

import pytest

from papers.dwm_2021 import costs as dwm_costs
from papers.dwm_2021.networks import networks, r2plus1d
from tests.papers.dwm_2021.support import cells_of, claims
from winolab.ref.algebra.transforms import transforms


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


def test_r2plus1d_has_as_many_weights_as_the_network_of_three_dimensions():
    """The channels between are the most that keep a 3×3×3's weights, but for the first layer's."""
    layers = list(r2plus1d())
    assert len(layers) == 2 + 4 * (3 + 4 + 6 + 3) + 3
    pairs = [p for p in layers if p.filter != (1, 1, 1)][2:]
    for spatial, temporal in zip(pairs[::2], pairs[1::2], strict=True):
        c, between, k = spatial.in_channels, spatial.out_channels, temporal.out_channels
        assert between == temporal.in_channels
        assert 9 * c * between + 3 * between * k <= 27 * c * k
        assert 9 * c * (between + 1) + 3 * (between + 1) * k > 27 * c * k
        assert spatial.y_shape == temporal.x_shape
    for first, then in pairwise(layers):
        if (1, 1, 1) not in (first.filter, then.filter):
            assert first.y_shape == then.x_shape
    assert layers[-1].y_shape == (1, 4, 7, 7, 512)
    (cell,) = (c for c in cells_of(dwm_costs.TABLE8) if c.where == "R(2+1)D-34" and c.claim)
    assert (cell.paper, cell.agrees, round(cell.ours, 2)) == (152.4, True, 152.36)


def test_large_kernels_save_half_and_more_but_for_seven_taps():
    """51, 49, 56 and 54 % in 2-D; 70.4 % of 9×9×9 is printed as 70."""
    two, three = (
        {k: v for k, v in claims(t).items() if "large kernels" in k}
        for t in (dwm_costs.TABLE3, dwm_costs.TABLE4)
    )
    assert [v for _, v in sorted(two.items())] == [True, True, False, True]  # 11, 5, 7, 9
    assert list(three.values()) == [True] * 3


@pytest.mark.parametrize(
    ("kernel", "due"), [(3, Fraction(12, 9)), (5, Fraction(20, 11)), (7, Fraction(28, 13))]
)
def test_phases_by_tiles_of_four_outputs(kernel: int, due: Fraction):
    """By hand, of a dimension: 5 + 4, 6 + 5 and 7 + 6 products for 4 outputs of 3, 5 and 7 taps."""
    assert dwm_costs.phases_saved(2, kernel, 2) == pytest.approx(float(due**2), rel=1e-15)
    printed = {3: "1.78", 5: "3.31", 7: "4.64"}[kernel]
    assert f"{dwm_costs.phases_saved(2, kernel, 2):.2f}" == printed
    shown = {c.where: c.ours for c in cells_of(dwm_costs.TABLE3) if c.column == dwm_costs.PHASES}
    assert shown[f"2-D, {kernel} taps, stride 2"] == dwm_costs.phases_saved(2, kernel, 2)


def test_transforms_are_most_of_one_tile_s_multiplications_and_few_of_a_layer_s():
    for table in (dwm_costs.TABLE3, dwm_costs.TABLE4):
        found = claims(table)
        assert found["most of Winograd's multiplications are its transforms', one tile: least part"]
        assert not found["the same in a layer, where channels and filters share them: least part"]
    # Two dimensions, by hand: F(2, 3)'s matrices only shift.
    assert dwm_costs.transforming(dwm_costs.layer(2, 3, 1, 2, 1)) == 0


def test_gradients_save_as_the_forward_pass_does():
    """In layers that keep their size, by the cost of each direction."""
    for table in (dwm_costs.TABLE3, dwm_costs.TABLE4):
        found = [holds for text, holds in claims(table).items() if "gradient saves" in text]
        assert found == [True, True]
