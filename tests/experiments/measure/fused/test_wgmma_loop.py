"""The loop of a fused kernel on wgmma: it multiplies and transforms all that it is to, and spills
nothing; its stages by hand."""

from __future__ import annotations

import re

import pytest

from experiments.measure.fused.wgmma_loop import KERNEL, LOOPS, THREADS, Loop, verdict
from tests.experiments.measure.fused.opcodes import FADD, opcodes
from winolab.algorithm import Problem
from winolab.gpu.runtime import nvrtc

HGMMA = 0xDF0
ROLES = "CONSUMER", "PRODUCER"


@pytest.mark.parametrize("loop", LOOPS, ids=str)
def test_the_machine_code_has_all_products_and_sums(loop: Loop) -> None:
    """Eight states have one product each, or three and 16 additions of a thread outside."""
    source = loop.source()
    made = nvrtc.compile_cubin(source, "sm_90a")
    assert made.resources[KERNEL].spills == 0
    # What setmaxnreg hands out has to be allocated by the launch, or the warps wait for ever.
    grown, shrunk = (int(re.findall(rf"{role}_REGISTERS = (\d+)", source)[0]) for role in ROLES)
    assert 256 * grown + 128 * shrunk <= THREADS * made.resources[KERNEL].registers
    codes = opcodes(made.cubin, KERNEL)
    split = loop.parts == 2
    assert codes[HGMMA] == 8 * (3 if split else 1)
    # BT of two channels: 2 × 4 times 4 sums of columns and rows each; differences of two parts
    transforms = (2 * 2 * 4 * 4 + 2 * 16 * split) * loop.transforms
    assert codes[FADD] == 8 * 16 * split + transforms


def test_stages_by_hand() -> None:
    split, half = (next(v for v in LOOPS if v.precision == p) for p in ("fp32_split", "fp16"))
    conv3 = Problem.of((32, 28, 28, 128), (128, 3, 3, 128), padding=1)
    # 2 × 196 blocks of 32 tiles, three rounds of 132, of 8 stages of 16 channels
    assert split.work(conv3, 132) == (132, 3 * 8)
    # 2 × 131 blocks of 48 tiles: two rounds
    assert half.work(conv3, 132) == (132, 2 * 8)
    # One image: 4 × 2 blocks, in eight parts of two stages
    assert split.work(Problem.of((1, 14, 14, 256), (256, 3, 3, 256), padding=1), 132) == (64, 2)


def test_what_could_win_is_said() -> None:
    row = {"precision": "fp16", "transforms": True, "layer": "Conv2 N=1", "gain": 1.2}
    told = list(verdict([row, row | {"layer": "Conv3 N=1", "gain": 0.6}]))
    assert told == [
        "fp16: the loop over the pick 0.60 to 1.20, mean 0.85; could win on 1 of 2 layers: "
        "Conv2 N=1 1.20"
    ]
