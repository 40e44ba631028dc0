"""Reads and writes beyond arrays, of which nothing comes, end a kernel and are named."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support.host_compiler import compiler
from tests.judge.pages.children import ends
from winolab.judge import apart, judgement
from winolab.judge.apart import judge_apart
from winolab.judge.claim import Claim
from winolab.judge.judgement import cases, judge
from winolab.judge.loading import load
from winolab.judge.pages.trial import PLACE
from winolab.judge.problems import fixed
from winolab.judge.trial import Finding

HERE = Path(__file__).parent
KERNELS = str(HERE / "kernels.py")
SIZES = "N H W C K R S OH OW PH PW"
SIGNATURE = f"""name = "right"
arguments = {["x", "w", "y", *(f"int {name}" for name in SIZES.split())]}
"""
FLAGS = ("-x", "c++", "-O1", "-shared", "-fPIC", "-g0", "-fno-exceptions", "-fno-rtti")
PLAIN = "stride=1 dilation=1 groups=1 contiguous"
# What ends each kernel that ends.
FAULTS = {
    "masked_end": "reads beyond the end of x",
    "masked_start": "reads before the start of x",
    "vector": "reads beyond the end of x",
    "vector_of_w": "reads beyond the end of w",
    "before_w": "reads before the start of w",
    "whole_vectors": "reads beyond the end of x",
    "writes_end": "writes beyond the end of y",
    "writes_start": "writes before the start of y",
    "writes_x": "writes beyond the end of x",
    "reads_y": "reads beyond the end of y",
}
OF_PYTHON = (
    *("right", "aligned_only", "reads_beyond_x", "reads_before_w", "by_address"),
    *("raises_at_an_end", "writes_beyond_y", "reads_before_a_workspace", "spills", "within"),
    "knows_its_functions",
)
OF_TORCH = "reads_beyond_y", "reads_before_y", "right"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged") / "beside.so"
    source = str(HERE / "beside.cpp")
    subprocess.run([*compiler(), *FLAGS, "-o", str(path), source], check=True)
    path.with_suffix(".toml").write_text(SIGNATURE)
    return path


Ended = Callable[..., list[list[str]]]


@pytest.fixture(scope="module")
def ended(library: Path) -> Ended:
    """What ended kernels of this folder, all of which one process begins."""
    files = {"beside": str(library), "kernels": KERNELS, "with_torch": str(HERE / "with_torch.py")}
    named = [("beside", name, PLAIN) for name in (*FAULTS, "right")]
    named += [("beside", "whole_vectors", f"{PLAIN} aligned")]
    named += [("kernels", name, "") for name in OF_PYTHON]
    named += [("winolab", "conv_forward", ""), ("torch.nn.functional", "conv2d", "")]
    named += [("with_torch", name, "") for name in OF_TORCH]
    said = ends([(f"{files.get(file, file)}:{name}", serves) for file, name, serves in named])
    keys = (f"{file}:{name}{' aligned' * ('aligned' in s)}" for file, name, s in named)
    found = dict(zip(keys, said, strict=True))
    assert len(found) == len(named)
    return lambda *asked: [found[name] for name in asked]


def test_what_is_read_or_written_beyond_an_array_is_named(ended: Ended) -> None:
    found = ended(*map("beside:{}".format, FAULTS))
    assert dict(zip(FAULTS, found, strict=True)) == {
        name: ["SIGSEGV", said] for name, said in FAULTS.items()
    }


def test_right_kernels_go_on(ended: Ended) -> None:
    """Whole vectors of 16 bytes may be read where arrays are aligned, whatever they end with."""
    names = (
        "beside:right",
        "beside:whole_vectors aligned",
        "kernels:right",
        "kernels:aligned_only",
    )
    assert ended(*names) == [["", ""]] * 4
    assert ended("winolab:conv_forward", "torch.nn.functional:conv2d") == [["", ""]] * 2


def test_other_ends_are_what_they_are(ended: Ended) -> None:
    named = ("reads_beyond_x", "reads_before_w", "by_address", "raises_at_an_end")
    x, w, place, crash = ended(*map("kernels:{}".format, named))
    assert x == ["SIGSEGV", "reads beyond the end of x"]
    assert w == ["SIGSEGV", "reads before the start of w"]
    assert place[0] == ""
    assert place[1].startswith("place: ")
    assert place[1].endswith(" (with a protected page beyond the end of x)")
    assert crash == ["", "crash: it raised MemoryError: no room"]


def test_new_memory_ends_there_too(ended: Ended) -> None:
    """The result and workspaces, where the kernel has them of NumPy's or PyTorch's functions."""
    faults = {
        "kernels:writes_beyond_y": "writes beyond the end of new memory",
        "kernels:reads_before_a_workspace": "reads before the start of new memory",
        "with_torch:reads_beyond_y": "reads beyond the end of new memory",
        "with_torch:reads_before_y": "reads before the start of new memory",
    }
    assert ended(*faults) == [["SIGSEGV", said] for said in faults.values()]
    spilled = ["", "writes: the kernel writes beyond the end of new memory"]
    assert ended("kernels:spills") == [spilled]
    right = ("kernels:within", "kernels:knows_its_functions", "with_torch:right")
    assert ended(*right) == [["", ""]] * 3


def test_the_other_checks_accept_it_and_the_judgement_refuses_it(library: Path) -> None:
    """NaN around arrays does not show it, in this process, where nothing is protected."""
    serves = f"{PLAIN} padding=1 filter=3 batch=1 channels=3 out_channels=4"
    named, claim = f"{library}:masked_end", Claim()
    how: dict[str, Any] = {"count": 0, "skip": frozenset({"leak", "threads"})}
    accepted = judge(load(named, serves=serves), claim, **how)
    assert accepted, accepted.verdict
    assert not accepted.facts["pages"]
    refused, _ = judge_apart(named, claim, {"serves": serves}, how)
    assert [fault.finding.check for fault in refused.faults] == ["pages"]
    said = "pages: the kernel reads beyond the end of x, where it may not: SIGSEGV [seen with 1x1x1"
    assert said in refused.verdict
    assert len(refused.rows) == len(accepted.rows)


def test_a_judgement_ends_with_the_smallest_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the fixed ones, if somebody hears what it means that the process ends."""
    heard: list[str] = []
    candidate = load(f"{KERNELS}:right")
    monkeypatch.setattr(judgement, "cases", lambda *of: (c for c in cases(*of) if c.place == PLACE))
    found = judge(candidate, Claim(), count=0, ending=heard.append)
    assert not found.faults
    assert found.facts["pages"]
    assert {row["arrays"] for row in found.rows} == {"numpy beside protected pages"}
    assert found.rows[0]["problem"] == "1x1x1x4>4x3x3p1"
    assert {row["outcome"] for row in found.rows} == {"accepted"}
    assert len(found.rows) == len([p for p in fixed(2) if not p.empty])
    for how in ({"skip": frozenset({"pages"}), "ending": heard.append}, {}):
        found = judge(candidate, Claim(), count=0, **how)
        assert not found.rows
        assert not found.facts["pages"]
    assert heard[:3] == ["writes beyond the end of x", "", "reads beyond the end of x"]


def test_a_signal_has_its_finding() -> None:
    assert apart._finding(-11, "reads") == Finding(
        "pages", "the kernel reads, where it may not: SIGSEGV"
    )
    assert apart._finding(-11, "writes to w") == Finding(
        "inputs", "the kernel writes to w, if only for a while: SIGSEGV"
    )
    assert apart._finding(-11, "").check == "crash"
    killed = "it ended the process (SIGKILL), perhaps as it reads"
    assert apart._finding(-9, "reads") == Finding("crash", killed)
    assert apart._finding(1, "") == Finding("crash", "it ended the process (exit code 1)")
