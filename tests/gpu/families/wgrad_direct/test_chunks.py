"""Who computes which work tiles of a filter gradient by columns: each once, nobody much longer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from winolab.device import H100
from winolab.gpu.families.wgrad_direct.chunks import (
    NONE,
    ORDERED,
    Columns,
    Cost,
    leveled,
    lpt_order,
    ways,
)

lengths = st.lists(st.integers(1, 400), min_size=1, max_size=300).map(np.array)
blocks = st.integers(1, 144)
costs = st.builds(Cost, st.floats(0.5, 2), st.floats(0, 40), st.just(4))


@given(lengths, blocks, costs)
def test_items_alone_are_computed_once_by_who_is_done_first(stages, slots, cost):
    found = lpt_order(stages, slots, cost)
    seconds = stages * cost.stage + cost.part
    if not found.order:  # few work tiles, or more than a launch brings along: in turn
        longest = max(seconds[block::slots].sum() for block in range(slots))
        assert np.allclose(found.loads, longest)
        return
    assert len(found.order) <= ORDERED
    table = np.array(found.order).reshape(-1, slots)
    assert sorted(table[table != NONE]) == list(range(len(stages)))
    sums = np.where(table == NONE, 0.0, seconds[np.where(table == NONE, 0, table)]).sum(axis=0)
    assert np.allclose(sums, found.loads)
    assert list(found.loads) == sorted(found.loads)
    # Who ends last began the last work tile when nobody was done before (Graham 1969).
    mean = seconds.sum() / slots
    assert found.loads[-1] <= (mean + (1 - 1 / slots) * seconds.max()) * (1 + 1e-9)


@given(lengths, st.lists(st.floats(0, 100), min_size=1, max_size=50).map(sorted), costs)
def test_shares_follow_one_another_and_level_what_blocks_have(stages, loads, cost):
    found = leveled(stages, 7, loads, cost)
    level = (stages.sum() * cost.stage + sum(loads)) / len(loads)
    if found is None:  # a block would have no stage, or less than half of one
        assert level - loads[-1] < cost.stage * 1.5 or len(loads) > stages.sum()
        return
    starts, seconds = found
    assert seconds >= level
    before = np.concatenate([[0], np.cumsum(stages)])
    at = 0
    for load, (item, first, count) in zip(loads, starts, strict=True):
        assert before[item - 7] + first == at
        assert 0 <= first < stages[item - 7]
        assert count >= 1
        assert abs(load + count * cost.stage - level) <= 1.0000001 * cost.stage
        at += count
    assert at == stages.sum()


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple),
    st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
    st.integers(1, 60),
    costs,
    st.booleans(),
)
def test_no_way_takes_less_time_than_there_is_work(blocks, useful, channels, cost, cached):
    """For all blocks together, and for a block that computes whole work tiles alone."""
    found, of_row = Columns(1, max(useful), useful, blocks), channels * len(useful)
    work = found.stages(of_row * len(blocks)).sum() * cost.stage
    for way in ways(found, of_row, H100, cost, cached):
        assert way.seconds >= work / H100.multiprocessors * (1 - 1e-9)
        assert way.alone + way.shared == of_row * len(blocks)
