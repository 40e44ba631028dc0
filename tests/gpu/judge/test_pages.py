"""Beside addresses where nothing is mapped: ``winolab judge --pages`` on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judge.pages.children import ends
from winolab.judge.apart import judge_apart
from winolab.judge.claim import Claim

pytestmark = pytest.mark.gpu
BEYOND = str(Path(__file__).with_name("beyond.py"))
OURS = "experiments/judged/kernels_gpu/ours.py:direct"
SERVES = "filter=3 stride=1 padding=1 dilation=1 groups=1"
FAULTS = {
    "reads_beyond_x": "reads or writes beyond the end of x",
    "reads_before_x": "reads or writes before the start of x",
    "reads_beyond_w": "reads or writes beyond the end of w",
    "writes_beyond_y": "reads or writes beyond the end of y",
    "writes_beyond_new": "reads or writes beyond the end of new memory",
}


def test_what_is_touched_beyond_an_array_is_named() -> None:
    found = ends([(f"{BEYOND}:{name}", "") for name in FAULTS])
    for (name, said), (signal, told) in zip(FAULTS.items(), found, strict=True):
        assert signal == "", name
        assert told.startswith(f"pages: the kernel {said}: "), name
        assert "illegal" in told


def test_right_kernels_of_cupy_and_pytorch_go_on() -> None:
    """PyTorch's are given arrays of PyTorch over the same memory."""
    pytest.importorskip("torch")
    named = (f"{BEYOND}:right", f"{BEYOND}:within", "torch.nn.functional:conv2d")
    assert ends([(name, "") for name in named]) == [["", ""]] * 3


def test_the_command_s_judgement_ends_with_it() -> None:
    how = {"count": 0, "pages": True, "skip": frozenset({"leak", "threads"})}
    loaded = {"device": "cuda", "serves": f"{SERVES} batch=1 channels=8 out_channels=8"}
    found, _ = judge_apart(f"{BEYOND}:reads_beyond_w", Claim(), loaded, how)
    assert [fault.finding.check for fault in found.faults] == ["pages"], found.verdict
    without, _ = judge_apart(f"{BEYOND}:reads_beyond_w", Claim(), loaded, {**how, "pages": False})
    assert without, without.verdict
    ours, _ = judge_apart(OURS, Claim(), {**loaded, "arrays": "cupy"}, how)
    assert ours, ours.verdict
    assert any(row["arrays"] == "cupy beside protected pages" for row in ours.rows)
