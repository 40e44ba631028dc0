"""Every kernel that the planner picks for the papers' layers compiles to what kernels.csv says."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import pytest

from tests.gpu import kernels
from winolab.gpu.codegen.emit import kernel
from winolab.gpu.runtime.nvrtc import CompileError

SPOTS = 2
TABLE = kernels.by_unit(kernels.read())
OUTDATED = f"tests/gpu/kernels.csv is out of date: {kernels.COMMAND}, and look at what changed"


@pytest.mark.parametrize("device", [kernels.HOPPER, *kernels.EARLIER])
def test_the_table_says_what_every_picked_kernel_takes(device) -> None:
    """An assembler says the same of the same source: what is as the table has it is compiled again
    for SPOTS units on 9.0, so that the table is known to be of this compiler and this code."""
    units = kernels.units(device)
    (arch,) = {unit.arch for unit in units.values()}
    assert sorted(units) == [name for a, name in TABLE if a == arch], OUTDATED
    spots = sorted(unit.hash for unit in units.values())[: SPOTS * (arch == "sm_90a")]
    for name, unit in units.items():
        entries = set(re.findall(r"\b(winolab_\w+)\(const __grid_constant__", unit.source))
        planned = {kernel for kernel, _ in unit.shared}
        assert planned <= entries if unit.space else planned == entries, name
        rows = TABLE[arch, name]
        if unit.hash in spots or unit.hash != rows[0].source:
            compiled = unit.compile({row.kernel: row.registers for row in rows})
            if rows[0].compiler == kernels.compiler():
                case = asdict(unit.case)
                told = [replace(row, source=unit.hash, **case) for row in rows]
                assert compiled == told, f"{name}: {OUTDATED}"
            rows = compiled
        assert max(row.spills for row in rows) <= kernels.allowed(name), name


def test_warps_ask_for_no_more_registers_than_a_launch_gives() -> None:
    """Where setmaxnreg hands them out, the table's test compiles the comparison of the two."""
    case = kernels.Case(kernels.HOPPER, "forward", "128x48x48x128:128x3x3", "fp32_ffma")
    (unit,) = kernels.Unit.all(case)
    with pytest.raises(CompileError, match="registers of winolab_gamma_ffma"):
        unit.compile({"winolab_gamma_ffma": 64})


def test_every_kernel_that_hands_registers_over_is_known() -> None:
    for name in (
        "gamma_ffma/kernel",
        "gamma_ffma/fallback_kernel",
        "gamma_wgmma/kernel",
        "gamma_mma/kernel",
        "nested/products",
        "wgrad_ffma/kernel",
        "fused2d/kernel",
        "wgrad_winograd/products_wgmma",
        "wgrad_winograd/products_mma",
        "wgrad_direct/columns",
        "wgrad_direct/narrow",
        "wgrad_direct/split",
        "direct/kernel",
    ):
        text = kernel(name)
        entries = re.findall(r"(winolab_\w+)\(const __grid_constant__", text)
        assert entries
        body = kernel("gamma_ffma/mainloop") if "gamma(p" in text else text
        for asked in re.findall(r"registers_(?:grow|shrink)<(\w+)>", body):
            assert all(asked in kernels.ASKED[entry] for entry in entries)


@pytest.mark.parametrize("part", kernels.SPILLS)
def test_spills_that_are_allowed_are_still_there(part) -> None:
    found = [row.spills for row in kernels.read() if part in row.unit]
    assert max(found) == kernels.SPILLS[part]


def test_comments_do_not_change_a_unit() -> None:
    unit = kernels.Unit.all(next(kernels.cases(kernels.HOPPER)))[0]
    assert replace(unit, source=unit.source + "\n  // seen\n").hash == unit.hash
    assert replace(unit, source=unit.source + "int more;").hash != unit.hash
