"""The model of shared memory's banks, by hand-counted accesses and the paper's statements."""

from __future__ import annotations

import pytest

from winolab.gpu.families.fused2d.banks import (
    HOPPER,
    LANES,
    TURING,
    Cost,
    Instructions,
    accesses,
    families,
    loads,
    stores,
)
from winolab.gpu.families.fused2d.layouts import layout, layouts


@pytest.mark.parametrize(
    ("words", "width", "transactions"),
    [
        ([*range(32)], 1, 1),  # one word a bank
        ([0] * 32, 1, 1),  # the same word is told to all
        ([32 * lane for lane in range(32)], 1, 32),  # one bank
        ([2 * lane for lane in range(32)], 1, 2),
        ([33 * lane for lane in range(32)], 1, 1),  # turned by a word a row
        ([2 * lane for lane in range(32)], 2, 2),  # a transaction half a warp
        ([32 * (lane // 16) + 2 * (lane % 16) for lane in range(32)], 2, 2),
        ([4 * lane for lane in range(32)], 2, 4),
        ([4 * lane for lane in range(32)], 4, 4),
        ([8 * lane for lane in range(32)], 4, 8),
    ],
)
def test_transactions(words, width, transactions) -> None:
    assert accesses(words, width) == Instructions(1, transactions, width, 0, 128 * width)


def test_idle_lanes_cost_their_slot() -> None:
    """Half of the lanes, of whole quarters, take as many transactions as all."""
    words = [4 * lane if lane % 16 < 8 else None for lane in range(LANES)]
    assert accesses(words, 4) == Instructions(1, 4, 4, 16, 256)


def test_what_is_not_aligned_is_refused() -> None:
    with pytest.raises(ValueError, match="a word is no multiple of 2"):
        accesses([1] * 32, 2)


@pytest.mark.parametrize(
    ("width", "load", "store"), [(1, 2.11, 4.06), (2, 4.00, 6.01), (4, 8.00, 10.00)]
)
def test_turing_s_cycles_are_table_1_s(width, load, store) -> None:
    """Within 6 %: a load of 32 bits takes 2.11 cycles where the units' 64 bytes a cycle say 2."""
    full = accesses([width * lane for lane in range(LANES)], width)
    assert TURING.cycles(full, stores=False) == pytest.approx(load, rel=0.06)
    assert TURING.cycles(full, stores=True) == pytest.approx(store, rel=0.02)


@pytest.mark.parametrize("active", [32, 16])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_an_h100_s_warps_move_a_transaction_a_cycle(width, active) -> None:
    """Measured: 128 bytes a cycle whatever the width, 64 where half of the lanes are idle."""
    words = [width * lane if lane % 16 < active // 2 else None for lane in range(LANES)]
    asked = accesses(words, width)
    for storing in (False, True):
        assert HOPPER.bytes_a_cycle(asked, storing) == 4 * active


@pytest.mark.parametrize("filters", [64, 32])
def test_no_layout_conflicts_and_all_sums_go_through(filters) -> None:
    for made in layouts(filters):
        cost = Cost.of(made)
        assert cost.stores.conflicts == cost.loads.conflicts == 0
        assert cost.stores.bytes == cost.loads.bytes == 4 * 16 * filters * 32


def test_the_papers_statements() -> None:
    yan, compact, wide = (Cost.of(layout(name, 64)) for name in ("yan", "compact", "wide"))
    assert yan.stores.idle_share == 0.5
    assert TURING.bytes_a_cycle(yan.stores, stores=True) == 25.60
    assert TURING.bytes_a_cycle(compact.stores, stores=True) == pytest.approx(42.61, rel=0.002)
    assert (compact.padding, wide.padding) == (0, 0)
    # ours: 128-bit stores of all lanes
    assert wide.stores.idle_share == 0
    assert TURING.bytes_a_cycle(wide.stores, stores=True) == 51.2
    assert wide.cycles() < compact.cycles() < yan.cycles()


@pytest.mark.parametrize("name", ["compact", "wide"])
def test_the_search_finds_the_layouts_and_only_what_has_no_conflict(name) -> None:
    family = families(64)[name]
    known = {"compact": {"i": 0, "row": 4, "matrix": 0},
             "wide": {"i": 0, "half": 0, "lanes": 8, "far": 16}}[name]  # fmt: skip
    turned = family.turned(known)
    made = layout(name, 64)
    for m in range(64):
        for tile in range(32):
            assert turned.address(m, tile) % 32 == made.address(m, tile) % 32
    found = family.search((0, known["row" if name == "compact" else "far"]))
    assert all(not (stores(t).conflicts or loads(t).conflicts) for t in map(family.turned, found))
    assert (known in found) == (name == "compact")
    flat = family.turned(dict.fromkeys(known, 0))
    assert stores(flat).conflicts or loads(flat).conflicts
