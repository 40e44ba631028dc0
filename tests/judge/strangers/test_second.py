"""The second stranger's faults, chosen before the judge was read: each is caught, right kernels
are accepted. Those of GPUs are in experiments/judged/kernels_gpu (stranger.cu, stranger_triton.py),
whose rows experiments.judged.on_gpu keeps."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.support.host_compiler import compiler
from winolab.judge.apart import judge_apart
from winolab.judge.claim import Claim
from winolab.judge.judgement import Judgement, judge
from winolab.judge.loading import load

HERE = Path(__file__).parent
PYTHON = str(HERE / "second.py")
SIZES = "N H W C K R S OH OW SH SW PH PW"
SIGNATURE = f"""name = "conv"
arguments = {["x", "w", "y", *(f"int {name}" for name in SIZES.split())]}
serves = "dilation=1 groups=1 contiguous"
"""
FLAGS = ("-x", "c++", "-O1", "-shared", "-fPIC", "-g0", "-fno-exceptions", "-fno-rtti")
SERVES = "dilation=1 groups=1 symmetric"
FEW = "channels=1-8 batch=1-2 out_channels=1-8 filter=3 stride=1 padding=1 dilation=1 groups=1"


def compiled(folder: Path, fault: str = "") -> str:
    path = folder / f"{fault.lower() or 'right'}.so"
    defined = [f"-D{fault}"] if fault else []
    source = str(HERE / "second.cpp")
    subprocess.run([*compiler(), *FLAGS, *defined, "-o", str(path), source], check=True)
    path.with_suffix(".toml").write_text(SIGNATURE)
    return str(path)


def judged(named: str, **loaded: Any) -> Judgement:
    """The first fault."""
    return judge(load(named, **loaded), Claim(), count=0, first=True, seconds=0.1)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("remembers_filters", "stale"),
        ("whole_chunks", "unwritten"),
        ("knows_the_first_map", "values"),
    ],
)
def test_a_fault_of_python_is_caught(name: str, check: str) -> None:
    found = judged(f"{PYTHON}:{name}", serves=SERVES)
    assert [fault.finding.check for fault in found.faults] == [check], found.verdict


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("LONG_SUMS_WITHOUT_TAIL", "values"),
        pytest.param("FLUSHES_AT_ITS_END", "state", marks=pytest.mark.skipif(
            platform.machine() not in ("x86_64", "AMD64"), reason="the switch is x86's")),
    ],
)  # fmt: skip
def test_a_fault_of_c_is_caught(name: str, check: str, tmp_path: Path) -> None:
    named = compiled(tmp_path, name)
    try:
        found = judged(named)
    finally:
        if check == "state":
            ctypes.CDLL(named.partition(":")[0]).restore()
    assert [fault.finding.check for fault in found.faults] == [check], found.verdict
    assert np.float32(1e-39) * np.float32(1) > 0  # in this process again


def test_an_operand_that_is_written_for_a_while_is_seen(tmp_path: Path) -> None:
    """Its bytes are the same when the call returns: only where they may not be written it shows."""
    how = {"count": 0, "skip": frozenset({"leak"})}
    named = compiled(tmp_path, "NEGATES_FOR_A_WHILE")
    found, _ = judge_apart(named, Claim(), {"serves": FEW}, how)
    assert [fault.finding.check for fault in found.faults] == ["inputs"], found.verdict
    assert "the kernel writes to w, if only for a while: SIGSEGV" in found.verdict


def test_right_kernels_are_accepted(tmp_path: Path) -> None:
    """A signature with one padding a dimension says so itself: other problems are not asked."""
    how = {"count": 2, "skip": frozenset({"leak", "threads"})}
    for named, serves in ((compiled(tmp_path), FEW), (f"{PYTHON}:conv", FEW)):
        found, _ = judge_apart(named, Claim(), {"serves": serves}, how)
        assert found, found.verdict
    whole = judge(load(compiled(tmp_path)), Claim(), count=4)
    assert whole, whole.verdict
