"""Steps left out of the fused kernel: what is compiled lacks them, and no plan has it."""

from __future__ import annotations

import pytest

from experiments.measure.fused import left_out
from tests.experiments.measure.fused.opcodes import FADD, FFMA, LDG, opcodes
from winolab.device import H100
from winolab.gpu.families.fused2d.config import KC
from winolab.gpu.families.fused2d.source import LEFT_OUT
from winolab.gpu.runtime import nvrtc


def test_layers_are_those_that_memory_does_not_bound() -> None:
    names = [case.layer for case in left_out.cases()]
    assert names[:4] == ["Conv2", "Conv3", "Conv4", "Conv5"]
    assert len(names) == 4 + 8
    assert "conv 1.1" not in names


def test_the_whole_kernel_is_the_plan_s_and_others_are_no_plan_s() -> None:
    for case in left_out.cases():
        whole, *others = left_out.cuts(case, H100)
        assert whole.source == whole.plan.source()
        assert (whole.name, [cut.name for cut in others][:3]) == ("nothing", list(LEFT_OUT))
        assert len({cut.source for cut in (whole, *others)}) == len(left_out.STEPS)


@pytest.fixture(scope="module")
def machine_code() -> dict[str, bytes]:
    case = next(left_out.cases())
    return {
        cut.name: nvrtc.compile_cubin(cut.source, "sm_90a").cubin
        for cut in left_out.cuts(case, H100)
    }


def test_what_is_left_out_is_not_in_the_machine_code_and_products_are(machine_code) -> None:
    """Each is shorter than the whole, what lacks all the shortest; all multiply as much."""
    sizes = {name: len(code) for name, code in machine_code.items()}
    found = {name: opcodes(code, "winolab_fused2d") for name, code in machine_code.items()}
    whole, least = sizes.pop("nothing"), sizes["loads and input transform and output transform"]
    assert all(size < whole for size in sizes.values())
    assert min(sizes.values()) == least
    assert {codes[FFMA] for codes in found.values()} == {KC * 2 * 8 * 8}  # two states, 8 × 8 sums
    assert found["loads"][LDG] < found["nothing"][LDG]
    assert found["input transform"][FADD] < found["nothing"][FADD]
    assert found["output transform"][FADD] < found["nothing"][FADD]
