"""Beside addresses where nothing is mapped: ``winolab judge`` on a GPU."""

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


@pytest.mark.parametrize(
    ("named", "library"),
    [
        (f"{BEYOND}:right", "cupy"),
        (f"{BEYOND}:within", "cupy"),
        ("torch.nn.functional:conv2d", "torch"),
        ("experiments/judged/kernels_gpu/native.py:conv", "torch"),
        ("experiments/judged/kernels_gpu/with_triton.py:conv", "triton"),
    ],
)
def test_right_kernels_go_on(named: str, library: str) -> None:
    """The arrays are the library's, over the same memory."""
    pytest.importorskip(library)
    assert ends([(named, "")]) == [["", ""]]


def test_the_command_s_judgement_ends_with_it() -> None:
    how = {"count": 0, "skip": frozenset({"leak", "threads"})}
    loaded = {"device": "cuda", "serves": f"{SERVES} batch=1 channels=8 out_channels=8"}
    found, _ = judge_apart(f"{BEYOND}:reads_beyond_w", Claim(), loaded, how)
    assert [fault.finding.check for fault in found.faults] == ["pages"], found.verdict
    left = {**how, "skip": how["skip"] | {"pages"}}
    without, _ = judge_apart(f"{BEYOND}:reads_beyond_w", Claim(), loaded, left)
    assert without, without.verdict
    ours, _ = judge_apart(OURS, Claim(), {**loaded, "arrays": "cupy"}, how)
    assert ours, ours.verdict
    assert any(row["arrays"] == "cupy beside protected pages" for row in ours.rows)
