"""The GPU's tables and figures from made-up rows, whole and in part."""

from __future__ import annotations

import math

import pytest

from experiments.gpu import ceilings as gpu_ceilings
from experiments.gpu import counters as counters_tables
from experiments.gpu import devices as gpu_devices
from experiments.gpu import frontier as gpu_frontier
from experiments.gpu import losses as gpu_losses
from experiments.gpu import variants as variants_tables
from experiments.gpu.rows import cases, data_bytes, kernel, ratio, tiles
from experiments.gpu.targets import table as gpu_targets
from experiments.harness import studies
from experiments.harness.tables import Cell, stored
from experiments.harness.verdicts import Verdict
from experiments.measure.cases import LISTS
from papers.im2col_winograd_2024 import kernels as im2col_kernels
from papers.winrs_2025 import kernels as winrs_kernels
from papers.winrs_2025.grid import FILTERS, grid
from papers.winrs_2025.lists import DRAWN, GFLOP
from tests.experiments import gpu_rows
from tests.experiments.gpu_rows import MACHINE
from winolab.algorithm import Tile

THROUGHPUT = gpu_rows.throughput()
ROWS = {"throughput": THROUGHPUT, "gpu_errors": gpu_rows.errors(), "host": gpu_rows.host(),
        "sanitizer": gpu_rows.sanitizer(),
        "counters": [*gpu_rows.counters(), *gpu_rows.fused_counters()],
        "throughput_variants": gpu_rows.variants(),
        "training": [*stored("training"), *gpu_rows.training()],
        "winrs_fused": gpu_rows.winrs_fused(), "winrs_plans": gpu_rows.winrs_plans(),
        "winrs_remedies": gpu_rows.winrs_remedies(),
        "winrs_recorded": gpu_rows.winrs_recorded(),
        **gpu_rows.fused2d(),
        "fused2d": stored("fused2d"), "shared_memory": stored("shared_memory")}  # fmt: skip
TABLES = [
    (table, [row for name in table.sources for row in ROWS.get(name) or stored(name)])
    for table in studies.kept()
]
TEXTS = studies.merged("texts", "TEXTS")
FIGURES = studies.merged("figures", "FIGURES")


@pytest.mark.parametrize(("table", "rows"), TABLES, ids=lambda v: getattr(v, "key", ""))
def test_every_table_has_cells_text_and_pictures(table, rows) -> None:
    cells = table.cells(rows)
    assert cells
    assert not any(math.isinf(cell.ours) for cell in cells)
    assert all(isinstance(line, str) for line in TEXTS[table.key].found(cells))
    for draw, caption in FIGURES[table.key]:
        figure = draw(rows)
        assert any(panel.lines or panel.collections for panel in figure.axes)
        assert caption


@pytest.mark.parametrize(("table", "rows"), TABLES, ids=lambda v: getattr(v, "key", ""))
def test_no_rows_no_cells(table, rows) -> None:
    assert table.cells([]) == []


def test_fastest_of_each_kind() -> None:
    (case,) = (c for c in cases(THROUGHPUT) if c.name == "128x96x96x64:64x3x3"
               and (c.direction, c.group) == ("forward", "fp32"))  # fmt: skip
    assert case.ffma is not None
    assert case.split is not None
    assert case.ours is not None
    assert case.frugal is not None
    assert case.any is not None
    assert case.tf32 is not None
    assert case.ffma["products"] == "fp32"
    assert case.split["products"] == case.ours["products"] == "fp32_split"
    assert case.frugal["kernel"] == "IMPLICIT_PRECOMP_GEMM"
    assert case.any["kernel"] == "FFT_TILING"
    assert case.tf32["method"] == "torch"
    assert case.limit == pytest.approx(2.25 * 50)
    assert ratio(case.ffma, case.frugal) == pytest.approx(100 / 30)


def test_the_last_run_of_a_case_counts_once() -> None:
    assert len(cases(THROUGHPUT)) == len({tuple(row["case"]) for row in THROUGHPUT})


@pytest.mark.parametrize(("name", "expected"), [("Γ8(6,3)", (8, 6, 3)), ("conv2d", (1, 1, 1)),
                                                ("Ω16(9,8)", (16, 9, 8)),
                                                ("Ω2(1,1)", (1, 1, 1))])  # fmt: skip
def test_kernel_names(name: str, expected: tuple) -> None:
    assert kernel(name) == expected


def test_tiles_of_kernels() -> None:
    assert tiles("F(3×4,7×5)") == [Tile(3, 7), Tile(4, 5)]
    assert tiles("F(8×8,9×9;19×19)") == [Tile(8, 9, 19)] * 2
    assert tiles("Γ8(6,3)") == [Tile(6, 3)]
    assert tiles("Ω2(1,1)") == tiles("conv2d") == []


def test_nested_kernels_stand_beside_those_that_transform_within() -> None:
    seven = [c for c in cases(THROUGHPUT) if c.layer.taps == 7 and c.group == "fp32"
             and c.direction == "forward"]  # fmt: skip
    for case in seven:
        assert case.ours is not None
        assert case.fused is not None
        assert (case.ours["kernel"], case.fused["kernel"][0]) == ("F(4×4,4×4)", "Γ")
    found = {c.where: c for c in gpu_targets.cells(THROUGHPUT)}
    assert found["Picked: nested, over transforms in one kernel"].ours == pytest.approx(350 / 250)
    within = "Split: workspace over the transformed filter and scales, transforms in one kernel"
    assert within in found


def test_winrs_sample_is_the_same_every_time() -> None:
    sample = LISTS["winrs"]
    assert len(sample) == DRAWN * len(FILTERS)
    assert str(sample[0]) == "32x128x128x256:256x2x2"
    assert all(2 * layer.problem.macs <= GFLOP * 1e9 for layer in sample)


def test_texts_say_how_many_layers_the_sample_leaves_out() -> None:
    small = sum(2 * layer.problem.macs <= GFLOP * 1e9 for layer in grid())
    told = f"Layers above {GFLOP} GFLOP, {len(grid()) - small} of the {len(grid()):,} of"
    for number in (2, 3, 4):
        assert told in TEXTS[f"winrs_2025 table{number}_kernels"].do


def test_a_lower_speed_misses_its_aim() -> None:
    found = gpu_targets.cells(THROUGHPUT)
    missed = {c.where for c in found if c.verdict is Verdict.MISSED}
    assert "Split: 128x12x12x512:512x3x3, TFLOPS" in missed
    assert all(c.paper is None for c in found)  # aims are ours


def test_what_ran_omega_is_judged_as_omega() -> None:
    """Direct products that are picked are shown, however little workspace they need."""
    for share, agrees in ((0.18, True), (0.15, False)):
        rows = [dict(row) for row in THROUGHPUT if row["list"] == "winrs"]
        spread = 0.01  # of workspaces, so that their average has an interval
        for row in rows:
            if row["method"] == "winolab" and row["precision"] == "fp32":
                (case,) = cases([row])
                omega = row["products"] == "fp32"
                row["kernel"] = "Ω8(3,6)" if omega else "direct"
                spread = -spread if omega else spread
                row["workspace"] = (share + spread if omega else 0.01) * data_bytes(case)
        found = {(c.where, c.column): c for c in winrs_kernels.cells_table2(rows)}
        column = "multiple of the data, average"
        judged, picked = found["WinRS, Ω", column], found["WinRS, picked", column]
        assert (judged.ours, judged.agrees) == (pytest.approx(share), agrees)
        assert (picked.ours, picked.verdict) == (pytest.approx(0.01), Verdict.SHOWN)
        assert f"{DRAWN * len(FILTERS)} of them direct products" in picked.note


def test_ratios_of_another_gpu_are_not_judged() -> None:
    for cells in (im2col_kernels.cells_table2(THROUGHPUT), winrs_kernels.cells_table3(THROUGHPUT)):
        printed = [c for c in cells if c.paper is not None]
        assert printed
        assert {c.verdict for c in printed} == {Verdict.NOT_COMPARABLE}
        assert all(c.note.endswith("another device") for c in printed)


def test_what_was_not_measured_has_failed() -> None:
    mine = [row for row in THROUGHPUT if row["list"] == "odd"]
    absent = [c for c in gpu_targets.cells(mine) if math.isnan(c.ours)]
    assert len(absent) > 30
    assert all((c.verdict is Verdict.MISSED) == (c.aim is not None) for c in absent)
    assert all(c.note.startswith("not measured; ") for c in absent)


def test_moduli_are_held_to_their_speed_at_their_error() -> None:
    """Made rows: the kernel with moduli that errs too much is no answer, however fast it is."""
    layer: dict = {"x": [32, 28, 28, 256], "padding": 3, "group": "fp32"}
    layer |= {"device": "a", "commit": "b"}
    layer |= {"w": [256, 7, 7, 256], "method": "winolab", "products": "fp32_split"}
    usual = layer | {"role": "picked", "kernel": "F(4×4,4×4)"}
    made = layer | {"role": "named"}
    rows: list[dict] = [
        usual | {"us": [1, 100, 101], "relative_rms_n01": 1e-6},
        made | {"kernel": "F(5×5,7×7;12×12)", "us": [1, 50, 51], "relative_rms_n01": 9e-7},
        made | {"kernel": "F(7×7,7×7;16×16)", "us": [1, 80, 81], "relative_rms_n01": 5e-7},
    ]
    what = "Moduli: 7×7 with moduli at half of the error, over what is picked without"

    def judged() -> Cell:
        found = gpu_targets.cells([*THROUGHPUT, *rows])
        return next(c for c in found if (c.where, c.column) == (what, "least"))

    assert (judged().ours, judged().verdict) == (100 / 80, Verdict.REACHED)
    rows[2]["us"][1] = 110
    assert judged().verdict is Verdict.MISSED
    rows[2]["relative_rms_n01"] = 6e-7
    assert math.isnan(judged().ours)


def test_a_tool_that_did_not_run_or_reported_a_kernel_misses() -> None:
    found = gpu_targets.cells([*THROUGHPUT, *gpu_rows.sanitizer()])
    reached = {c.where.split(": ")[1] for c in found
               if "sanitizer" in c.where and c.verdict is Verdict.REACHED}  # fmt: skip
    assert reached == {"memcheck"}


def test_a_wrong_result_is_never_the_fastest() -> None:
    rows = [dict(row) for row in THROUGHPUT if tuple(row["case"]) == THROUGHPUT[0]["case"]]
    (case,) = cases(rows)
    fast = case.split
    assert fast is not None
    fast["relative_rms_u11"] = "nan"
    (case,) = cases(rows)
    assert case.split is None
    (right, *_) = gpu_targets.cells(rows)
    assert (right.ours, right.verdict) == (1, Verdict.MISSED)
    assert case.name in right.note


def test_tables_are_of_the_gpu_that_was_measured_last() -> None:
    first = [row for row in THROUGHPUT if tuple(row["case"]) == THROUGHPUT[0]["case"]]
    h200 = {"device": "NVIDIA H200", "sgemm_tflops": 51.0, "run": "2026-11-25"}
    later = [row | h200 | {"tflops": row["tflops"] * (2 if row["method"] == "winolab" else 1)}
             for row in first]  # fmt: skip
    (case,) = cases([*later, *THROUGHPUT])
    assert (case.device.name, case.sgemm) == ("NVIDIA H200", 51.0)
    assert len(cases([*later, *THROUGHPUT], MACHINE["device"])) == len(cases(THROUGHPUT))
    one, other = gpu_devices.cells([*first, *later])
    assert [one.column, other.column] == ["NVIDIA H200", MACHINE["device"]]
    assert one.ours == pytest.approx(2 * other.ours)
    assert gpu_devices.told([*first, *later])[0] == "1 cases: NVIDIA H200 at abc."


def test_nobody_beats_a_point_of_the_frontier_in_both() -> None:
    layer, direction = gpu_frontier.PANELS[0]
    every = gpu_frontier.points(THROUGHPUT, layer, direction)
    best = gpu_frontier.edge(every)
    for point in every:
        beaten = any(p.tflops > point.tflops and p.error < point.error for p in every)
        assert not (beaten and point in best)
    (line, *_) = gpu_frontier.told(THROUGHPUT)
    assert layer in line
    assert "Not on it: winolab" in line  # FFMA: split products are faster and more exact


def test_every_plan_of_ours_is_a_point_of_its_own() -> None:
    """Slower and more exact products of split parts, by another kernel and by another plan."""
    layer, direction = gpu_frontier.PANELS[0]
    (split,) = (row for row in THROUGHPUT if row["case"][:2] == (layer, direction)
                and (row["method"], row["products"]) == ("winolab", "fp32_split"))  # fmt: skip
    slower = {"chosen": False, "relative_rms_u11": split["relative_rms_u11"] / 2}
    more = [split | slower | {"kernel": "Γ6(4,3)", "tflops": 200.0, "plan": "rows=8"},
            split | slower | {"tflops": 190.0, "plan": "rows=4", "workspace": 3 << 20}]  # fmt: skip
    mine = [(c.column, c.note) for c in gpu_frontier.cells([*THROUGHPUT, *more])
            if c.where.endswith(layer) and c.column.endswith("in fp32 split")]  # fmt: skip
    assert [column for column, _ in mine] == [
        "winolab Γ8(6,3) in fp32 split",
        "winolab Γ6(4,3) in fp32 split",
        "winolab Γ8(6,3) in fp32 split",
    ]
    assert ", on the frontier; rows=8" in mine[1][1]
    assert mine[2][1].endswith("; rows=4, 3 MiB of workspace")


def test_every_loss_is_told_with_its_reason() -> None:
    wide = [row for row in THROUGHPUT if row["case"][0] == "32x128x128x64:64x9x9"
            and row["case"][1:] == ("forward", "fp32")]  # fmt: skip
    slow = [dict(row, tflops=60.0) if row["method"] == "winolab" else row for row in wide]
    (loss,) = gpu_losses.slower(cases(slow))
    assert loss.kind == "cuDNN's FFT"
    assert loss.ratio == pytest.approx(60 / max(row["tflops"] for row in wide
                                                if row["kernel"] == "FFT_TILING"))  # fmt: skip
    loss.mine["kernel"] = "Γ8(4,5)"  # two pieces, ten taps of which nine are the filter's
    assert loss.saved == pytest.approx(4 * 9 / 16)
    loss.mine["kernel"] = "F(3×4,5×3)"
    assert loss.saved == pytest.approx(3 * 9 / (7 * 2) * 4 * 9 / (6 * 3))
    counted, told = gpu_losses.told(slow, [])
    assert "faster than every algorithm of cuDNN and PyTorch in 0 of 1 cases" in counted
    assert "it multiplies less often" in told
    assert "MiB of workspace" in gpu_losses.cells(slow)[0].note
    assert gpu_losses.cells(wide) == []


def test_factors_make_the_share_of_the_peak() -> None:
    plain, split = counters_tables.plans(gpu_rows.counters())
    for plan in (plain, split):
        peak = plan.peak * plan.seconds
        assert plan.reached == pytest.approx(plan.useful / peak)
        assert plan.factors["multiprocessors at work"] == pytest.approx(0.9)
    assert plain.useful == pytest.approx(2 * 128 * 48 * 48 * 128 * 128 * 9 / 2.25)
    assert split.useful == pytest.approx(3 * plain.useful)
    assert plain.stalls[0] == ("long_scoreboard", 0.25)


def test_policies_of_one_kernel_are_plans_of_their_own() -> None:
    rows = gpu_rows.counters()
    ruse = [{**row, "plan": "overlap=1", "seconds": 2 * row["seconds"]}
            for row in rows if row["products"] == "fp32"]  # fmt: skip
    plain, split, other = counters_tables.plans([*rows, *ruse])
    assert other.seconds == pytest.approx(2 * plain.seconds)
    assert other.reached == pytest.approx(plain.reached / 2)
    assert plain.name.endswith("128x48x48x128:128x3x3, a plan")
    assert other.name.endswith("128x48x48x128:128x3x3, overlap=1")
    assert split.name.endswith("128x48x48x128:128x3x3")  # alone: its policies need no words
    assert len({cell.where for cell in counters_tables.cells([*rows, *ruse])}) == 3
    others = [{**row, "device": "another GPU"} for row in rows]
    both = counters_tables.plans([*rows, *others])
    assert [plan.seconds for plan in both] == [plain.seconds, split.seconds] * 2
    assert len({plan.name for plan in both}) == 4


def test_ceilings_of_gradients_count_bytes_and_products() -> None:
    (case,) = (c for c in cases(THROUGHPUT) if c.name == "32x128x128x256:256x2x2"
               and (c.direction, c.group) == ("backward_filter", "fp16"))  # fmt: skip
    row = {"kernel": "Ω9(2,8)", "products": "fp16", "device": case.device.name}
    x, dy = 32 * 127 * 127 * 256, 32 * 128 * 128 * 256
    units = 32 * 16 * 9 * 256 * (127 + 128)
    seconds = 2 * (x + dy + 2 * units) / 3.352e12
    flop = 2 * dy * 256 * 4
    assert gpu_ceilings.transform_bound(case, row) == pytest.approx(flop / seconds / 1e12)
    split = row | {"products": "fp32_split"}
    ratio_ = gpu_ceilings.product_bound(row) / gpu_ceilings.product_bound(split)
    assert ratio_ == pytest.approx(3)


def test_variants_are_held_against_their_predictions() -> None:
    rows = gpu_rows.variants()
    ratios = [b / a for _, a, b in variants_tables.pairs(rows)]
    assert ratios == pytest.approx([869.7 / 870, 4.0], rel=1e-3)
    assert "1 were within 20%" in variants_tables.told(rows)[1]
    best = max(variants_tables.cells(rows), key=lambda cell: cell.ours)
    assert best.note == "best of 2: wide"
