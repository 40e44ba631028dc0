"""Calls whose workspace does not fit into memory, of pretended arrays and of a GPU's."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array, Library
from winolab import calls
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.planner.planner import plan, usual_limit
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import smaller
from winolab.gpu.runtime.array_layout import dense
from winolab.gpu.runtime.resolve import Resolved, resolve
from winolab.options import ConvOptions
from winolab.problem import Problem, shapes

SHAPE, FILTER = (2, 8, 12, 32), (32, 5, 5, 32)
HOW: dict[str, Any] = {"padding": 2, "precision": "fp32_ffma"}
# Bytes of workspace, of what the planner has for it: none does without.
PICKED = {"Γ8(4,5)": 327680, "Γ6(2,5)": 245760, "Γ1(1,1)": 204800}


def data() -> tuple[Array, Array, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in (SHAPE, FILTER))
    y = winolab.conv_forward(x, w, padding=2, precision="fp64", out_dtype=float)
    return Array(x), Array(w), y


def close(got: Any, expected: np.ndarray) -> bool:
    return bool(np.abs(got.values - expected).max() <= 1e-4)


def ran(library: Library) -> str:
    """The kernel that was loaded last."""
    return library.loaded[-1].split()[0]


@pytest.mark.parametrize("kernel", ["Γ6(2,5)", "Γ1(1,1)"])
def test_the_largest_that_fits_is_taken_and_kept(library, caplog, kernel: str) -> None:
    (x, w, y), wanted, taken = data(), PICKED["Γ8(4,5)"], PICKED[kernel]
    library.room = taken
    before = smaller.changes()
    assert close(winolab.conv_forward(x, w, **HOW), y)
    assert ran(library) == kernel
    assert library.refused[0] == wanted
    assert [record.getMessage() for record in caplog.records] == [
        f"no device memory for {wanted} B of workspace: forward of x{SHAPE} w{FILTER} takes "
        f"{taken} B from now on, by {kernel} in fp32"
    ]
    library.refused.clear()
    for _ in range(2):
        assert close(winolab.conv_forward(x, w, **HOW), y)
    out = Array(np.full(y.shape, np.nan, np.float32))
    winolab.conv_forward(x, w, out=out, **HOW)  # another call of what was asked
    assert close(out, y)
    calls.kept.clear()
    assert close(winolab.conv_forward(x, w, **HOW), y)
    assert not library.refused
    assert smaller.changes() == before + 1


def test_a_call_of_more_than_kernels_is_planned_again_too(library, monkeypatch) -> None:
    """An epilogue, a result of the caller's, converted; and what was recorded before."""
    x, w, y = data()
    for _ in range(2):
        assert close(winolab.conv_forward(x, w, **HOW), y)
    every: tuple[dict[str, Any], ...] = {"activation": "relu"}, {"out_dtype": "float16"}
    for how in every:
        monkeypatch.setattr(smaller, "_limits", {})
        calls.kept.clear()
        library.room = np.inf
        out = Array(np.full(y.shape, np.nan, how.get("out_dtype", "float32")))
        winolab.conv_forward(x, w, out=out, **HOW, **how)
        library.room = PICKED["Γ6(2,5)"]
        expected = np.maximum(y, 0) if "activation" in how else y
        for _ in range(2):
            out.values[...] = np.nan
            assert winolab.conv_forward(x, w, out=out, **HOW, **how) is out
            assert np.abs(out.values - expected).max() <= (1e-4 if "activation" in how else 0.05)
        assert library.refused == [PICKED["Γ8(4,5)"]]
        library.refused.clear()


def test_calls_that_were_recorded_before_take_what_was_found(library, caplog) -> None:
    x, w, y = data()
    out = Array(np.empty(y.shape, np.float32))
    winolab.conv_forward(x, w, **HOW)
    winolab.conv_forward(x, w, out=out, **HOW)
    library.room = PICKED["Γ6(2,5)"]
    assert close(winolab.conv_forward(x, w, **HOW), y)
    out.values[...] = np.nan
    winolab.conv_forward(x, w, out=out, **HOW)
    assert close(out, y)
    assert library.refused == [PICKED["Γ8(4,5)"]] * 2
    assert len(caplog.records) == 1


def test_less_is_found_again_and_again(library, caplog) -> None:
    """By the call that was made first, which leads to what stands for it by now."""
    x, w, y = data()
    winolab.conv_forward(x, w, **HOW)
    for kernel in ("Γ6(2,5)", "Γ1(1,1)"):
        library.room = PICKED[kernel]
        library.refused.clear()
        assert close(winolab.conv_forward(x, w, **HOW), y)
        assert ran(library) == kernel
        assert len(library.refused) <= 2  # and what the planner has first
        library.refused.clear()
        for _ in range(2):
            assert close(winolab.conv_forward(x, w, **HOW), y)
        assert not library.refused
    assert len(caplog.records) == 2


def test_what_does_not_fit_at_all_says_the_least(library, caplog) -> None:
    x, w, y = data()
    out = np.full(y.shape, 7, np.float32)
    library.room = 1000
    for _ in range(2):
        with pytest.raises(smaller.NoWorkspace, match=r"^no device memory for 327680 B; ") as said:
            winolab.conv_forward(x, w, out=Array(out), **HOW)
        assert str(said.value).endswith("the smallest plan takes 204800 B")
    assert (out == 7).all()
    assert not caplog.records
    library.room = np.inf
    assert close(winolab.conv_forward(x, w, **HOW), y)
    assert ran(library) == "Γ8(4,5)"


def test_a_result_that_does_not_fit_is_not_planned_again(library, monkeypatch) -> None:
    x, w, _ = data()

    def refuse(*how: Any) -> Any:
        raise MemoryError("no device memory for the result")

    monkeypatch.setattr(smaller, "less", refuse)
    monkeypatch.setattr(library, "empty", refuse)
    with pytest.raises(MemoryError, match="for the result") as said:
        winolab.conv_forward(x, w, **HOW)
    assert not isinstance(said.value, smaller.NoWorkspace)


@pytest.mark.parametrize(
    ("named", "wanted", "least"),
    [
        ({"algorithm": "gamma:8:4:5"}, 327680, 327680),
        ({"algorithm": "direct"}, 204800, 204800),
        ({"tolerance": "componentwise:1e-5"}, 204800, 204800),
        ({"workspace_limit": 260000}, 245760, 204800),
    ],
)
def test_what_the_caller_named_stays(library, named, wanted: int, least: int) -> None:
    x, w, _ = data()
    library.room = 200000
    with pytest.raises(smaller.NoWorkspace, match=f"for {wanted} B; the smallest.* {least} B$"):
        winolab.conv_forward(x, w, **HOW, **named)


def test_a_tolerance_rules_out_what_needs_no_workspace(library) -> None:
    """Without it a tile that errs more runs in none."""
    x, w = (Array(np.ones(shape, "f")) for shape in ((2, 8, 12, 32), (32, 3, 3, 32)))
    how: dict[str, Any] = {"padding": 1, "precision": "fp32_ffma"}
    library.room = 0
    winolab.conv_forward(x, w, **how)
    assert ran(library) == "F(2×2,3×3)"
    with pytest.raises(smaller.NoWorkspace):
        winolab.conv_forward(x, w, tolerance="componentwise:1e-5", **how)


def test_a_capture_is_left_alone(library, caplog) -> None:
    x, w, y = data()
    library.room, library.captures = PICKED["Γ6(2,5)"], True
    with pytest.raises(MemoryError, match=r"327680 B; while a graph captures, .* call once before"):
        winolab.conv_forward(x, w, **HOW)
    assert not caplog.records
    library.captures = False
    winolab.conv_forward(x, w, **HOW)
    library.captures = True  # what was found before serves
    assert close(winolab.conv_forward(x, w, **HOW), y)
    assert len(caplog.records) == 1


def test_a_smaller_filter_is_prepared(library, caplog) -> None:
    x, w, y = data()
    library.room = PICKED["Γ6(2,5)"]
    for _ in range(2):
        prepared = winolab.prepare_filter(w, SHAPE, **HOW)
        assert prepared.nbytes == PICKED["Γ6(2,5)"]
        assert close(winolab.conv_forward(x, prepared, **HOW), y)
    assert library.refused == [PICKED["Γ8(4,5)"]]
    assert len(caplog.records) == 1
    library.room = 1000
    with pytest.raises(smaller.NoWorkspace, match="the smallest plan takes 204800 B"):
        winolab.prepare_filter(w, SHAPE, **HOW)


def test_a_prepared_filter_s_plan_is_what_it_is(library) -> None:
    x, w, y = data()
    prepared = winolab.prepare_filter(w, SHAPE, **HOW)
    library.room = 1000
    assert close(winolab.conv_forward(x, prepared, **HOW), y)  # takes none
    first = Array(np.ascontiguousarray(np.moveaxis(x.values, -1, 1)).transpose(0, 2, 3, 1))
    with pytest.raises(smaller.NoWorkspace, match="49152 B: the prepared filter's kernel takes it"):
        winolab.conv_forward(first, prepared, **HOW)


LAYER = Problem.of((32, 28, 28, 256), (256, 7, 7, 256), padding=3)


def large(direction: str, precision: str) -> Resolved:
    """A layer's gradient by moduli, whose workspace is some times its data."""
    first, second, _ = shapes(direction, LAYER)
    dtype = "float32" if precision == "fp32" else "float16"
    a, b = (dense(shape, dtype) for shape in (first, second))
    return resolve(direction, LAYER, ConvOptions(precision=precision), a, b, None, meant=H100)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", ["forward", "backward_filter"])
def test_networks_layers_find_the_fastest_that_fits(
    library, caplog, direction: str, precision: str
) -> None:
    """In ever less memory, down to none or to what the smallest plan takes."""
    asked = large(direction, precision)
    request = Request(LAYER, direction, H100, None, precision)
    wanted = usual = plan(request)
    said = ""
    while wanted.workspace and not said:
        library.room = max(0, wanted.workspace // 2 - 1)
        try:
            smaller.less(asked, library, MemoryError(), usual.workspace)
        except smaller.NoWorkspace as error:
            said = str(error)
            continue
        _, made = smaller.planned(asked)
        assert made.plan
        assert made.workspace <= library.room
        assert made.plan.predicted >= wanted.predicted or usual is wanted
        wanted = made.plan
    assert wanted is not usual or not usual.workspace
    if wanted.workspace:
        assert int(said.split()[-2]) > library.room
    if direction == "backward_filter":
        assert usual.workspace > usual_limit(request)
        library.room = usual.workspace // 2
        smaller._limits.clear()
        smaller.less(asked, library, MemoryError(), usual.workspace)
        found = smaller.planned(asked)[1].plan
        within = plan(replace(request, workspace_limit=usual_limit(request)))
        assert found
        assert found.predicted < WORTH * within.predicted or found.workspace <= within.workspace


def test_limits_that_no_other_array_can_keep_are_left(library, monkeypatch) -> None:
    """What lies otherwise may have no plan within: it is planned as before."""
    asked = large("forward", "fp32")
    monkeypatch.setattr(smaller, "_limits", {smaller._key(asked, False): 0})
    within, made = smaller.planned(asked)
    assert within is asked
    assert made.plan == plan(Request(LAYER, "forward", H100, None, "fp32"))


@pytest.mark.gpu
@pytest.mark.parametrize("of", ["torch", "cupy"])
def test_memory_that_is_full(monkeypatch, caplog, of: str) -> None:
    """This process may take two results and 42 MiB more (others run tests on the same GPU): calls
    run within a limit that is kept, with the bits of the plan that it gives."""
    torch: Any = pytest.importorskip("torch")
    cp = driver.cupy()
    caplog.set_level(logging.WARNING, "winolab.gpu")
    for name, value in (("kept", {}), ("described_by", dict(calls.described_by))):
        monkeypatch.setattr(calls, name, value)
    monkeypatch.setattr(smaller, "_limits", {})
    x, dy = (torch.randn(32, 28, 28, 256, device="cuda") for _ in range(2))
    a, b = (x, dy) if of == "torch" else (cp.from_dlpack(x), cp.from_dlpack(dy))

    def gradient(limit: int | None = None) -> Any:
        how = {"padding": 3, "workspace_limit": limit}
        dw = winolab.conv_backward_filter(a, b, LAYER.w_shape, **how)
        return torch.from_dlpack(dw) if of == "cupy" else dw

    usual = plan(Request(LAYER, "backward_filter", driver.device(0), None, "fp32"))
    room = (30 << 20) + 2 * 4 * math.prod(LAYER.w_shape) + (12 << 20)
    if usual.workspace <= 2 * room:
        pytest.skip("on this GPU the planner takes little workspace for the layer")
    first = gradient().cpu()
    torch.cuda.empty_cache()
    pool, whole = cp.get_default_memory_pool(), torch.cuda.get_device_properties(0).total_memory
    pool.free_all_blocks()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + room) / whole)
    pool.set_limit(size=pool.total_bytes() + room)
    caplog.clear()
    try:
        # What is found is not kept there: its place may be cut out of what the workspace had.
        found = [gradient().cpu() for _ in range(2)]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        pool.set_limit(size=0)
    said = [r.getMessage() for r in caplog.records if r.name == "winolab.gpu"]
    assert [f"no device memory for {usual.workspace} B" in line for line in said].count(True) == 1
    (limit,) = smaller._limits.values()
    assert limit < usual.workspace
    expected = gradient(limit).cpu()
    assert all(torch.equal(each, expected) for each in found)
    assert not torch.equal(first, expected)
    torch.cuda.empty_cache()
