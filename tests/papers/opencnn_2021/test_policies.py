"""Policies, conflicts and steps of the fused kernel: cells are ratios of the rows beside."""

from __future__ import annotations

import itertools

import pytest

from experiments.harness.tables import stored
from experiments.harness.verdicts import Verdict
from papers.opencnn_2021 import figures, policies, texts
from papers.opencnn_2021.machine import LAYERS


def test_every_policy_is_beside_the_same_kernel_without() -> None:
    cells = policies.cells_policies(stored("fused2d"))
    assert {(c.where, c.column) for c in cells} == {
        (name, layer) for name in policies.POLICIES for layer in LAYERS
    }
    boxes = {c.column: c.ours for c in cells if c.where.startswith("boxes")}
    # tiles of the map over those of boxes: 28 and 14 rows and columns; those of 7 × 7 outputs are 4
    assert boxes["Conv2"] == pytest.approx(28 / 32, rel=0.03)
    assert boxes["Conv3"] == pytest.approx(14 * 14 / (16 * 16), rel=0.03)
    assert texts.TEXTS[policies.POLICY.key].found(cells)


def test_conflicts_are_counted_and_the_model_has_none() -> None:
    cells = policies.cells_banks(stored("counters"))
    model = [c.ours for c in cells if c.column.endswith("model")]
    assert model
    assert not any(model)
    shares = [c.ours for c in cells if c.column == "conflicts, % of wavefronts"]
    assert 0 < min(shares) < max(shares) < 10
    assert texts.TEXTS[policies.BANKS.key].found(cells)


def test_what_lacks_a_step_is_said_to_be_wrong() -> None:
    row = {"layer": "Conv2", "batch": 128, "share": 0.8, "results": "right", "left_out": []}
    less = row | {"left_out": ["loads"], "results": "wrong", "share": 0.95}
    whole, cut = policies.cells_left_out([row, less])
    assert (whole.column, whole.note, cut.column) == ("the kernel", "", "without loads")
    assert cut.note == "its results are wrong"
    assert "without loads 0.95" in texts.TEXTS[policies.STEPS.key].found([whole, cut])[0]


def test_errors_are_over_what_is_predicted_of_them() -> None:
    row = {"layer": "Conv2", "batch": 32, "direction": "forward", "kernel": "F(2×2,3×3)"}
    row |= {"products": "fp32", "plan": "64x32x8 channels stages=3+2 split_k=4", "data": "u12"}
    row |= {"rms": 2e-7, "mare": 3e-7, "predicted_rms": 1e-7, "simulated_mare": 3e-7}
    found = {c.column: c.ours for c in policies.cells_errors([row])}
    assert found == pytest.approx({
        "relative RMS, [1, 2)": 2e-7, "relative RMS, [1, 2), over the prediction": 2.0,
        "MARE, [1, 2)": 3e-7, "MARE, [1, 2), over the simulation": 1.0,
    })  # fmt: skip
    (told,) = texts.TEXTS[policies.ERRORS.key].found(policies.cells_errors([row]))
    assert "prediction 2.00 to 2.00, 1 of 1" in told


@pytest.mark.parametrize(("over", "same"), [(1.19, True), (1.21, False)])
def test_errors_are_a_fifth_from_the_simulation_and_bits_its_own(over: float, same: bool) -> None:
    row = {"layer": "Conv2", "batch": 32, "direction": "backward_data", "kernel": "F(2×2,3×3)"}
    row |= {"products": "fp32", "plan": "64x32x8 channels", "data": "u11", "equal": same}
    row |= {"rms": over * 1e-7, "simulated_rms": 1e-7, "predicted_rms": 1e-7}
    cells = policies.cells_errors([row])
    verdicts = {c.column: c.verdict for c in cells}
    reached = Verdict.REACHED if same else Verdict.MISSED
    assert verdicts["relative RMS, [-1, 1), over the simulation"] is reached
    assert verdicts["bits of the reference's, [-1, 1)"] is reached
    assert verdicts["relative RMS, [-1, 1), over the prediction"] is Verdict.SHOWN
    _, told = texts.TEXTS[policies.ERRORS.key].found(cells)
    assert told == f"Of 1 whose order is stated {int(same)} have the reference's bits."


def test_names_of_lines_do_not_overlap() -> None:
    """64 of them stood on each other in four inches."""
    for figure in (
        figures.loop(stored("fused2d_wgmma_loop")),
        figures.dots(policies.cells_errors, "over the", "ratio", stored("fused2d_errors")),
    ):
        figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
        assert len(boxes) > 20
        for above, below in itertools.pairwise(boxes):
            assert above.y0 >= below.y1


def test_a_loop_that_is_slower_wins_nowhere() -> None:
    row = {"layer": "Conv2 N=32", "precision": "fp16", "transforms": True, "pick": "Γ6(4,3) fp16"}
    rows = [row | {"pick_tflops": 300.0, "loop_tflops": 240.0, "gain": 0.8}]
    rows += [rows[0] | {"transforms": False}, rows[0] | {"layer": "Conv3 N=1", "precision": "fp32"}]
    (told,) = texts.TEXTS[policies.LOOP.key].found(policies.cells_loop(rows[:2]))
    assert "fp16 0.80 to 0.80" in told
    assert "wins nowhere" in told
    rows[2] |= {"gain": 1.3}
    (told,) = texts.TEXTS[policies.LOOP.key].found(policies.cells_loop(rows))
    assert "could win on Conv3 N=1 1.30" in told
