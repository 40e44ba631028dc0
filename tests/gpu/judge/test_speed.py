"""Times on a GPU: everybody is there, cold and warm, with workspace and share of the ceiling."""

from __future__ import annotations

from pathlib import Path

import pytest

from winolab.judge import speed
from winolab.judge.claim import Claim
from winolab.judge.loading import load
from winolab.problem import Problem

pytestmark = pytest.mark.gpu
HERE = Path(__file__).parent
FOLDER = "experiments/judged/kernels_gpu"
LAYER = Problem.of((2, 16, 16, 32), (32, 3, 3, 32), padding=1)  # a result of 64 KiB
SCRATCH = 1 << 20  # bytes that one kernel takes


@pytest.mark.parametrize(
    ("named", "beside"),
    [
        (f"{FOLDER}/with_cupy.py:right", 0),
        (f"{HERE / 'beyond.py'}:with_a_scratch", SCRATCH),
        (f"{FOLDER}/with_triton.py:conv", 0),
        (f"{FOLDER}/ours.py:direct", None),
    ],
)
def test_rows_have_everybody(named: str, beside: int | None) -> None:
    library = "torch" if "triton" in named else "cupy"
    pytest.importorskip("triton" if library == "torch" else "cupy")
    candidate = load(named, device="cuda", arrays=library)
    rows = speed.timed(candidate, Claim(), LAYER, "mine")
    timed = [row for row in rows if "tflops" in row]
    assert {row["method"] for row in timed} == {"judged", "cudnn", "torch", "winolab"}
    assert len([row for row in timed if row["method"] == "cudnn"]) >= 3  # algorithms
    assert {row["layout"] for row in timed if row["method"] == "torch"} == {"NHWC", "NCHW"}
    for row in timed:
        assert (row["row"], row["layer"], row["judged"]) == ("time", "mine", named)
        for times in (row["cold_us"], row["warm_us"]):
            assert 0 < times[0] <= times[1] <= times[2]
        assert row["share"] == pytest.approx(row["tflops"] / row["ceiling_tflops"], abs=2e-3)
        assert 0 < row["share"] < 16  # of FFMA's peak; TF32's is less than 16 times that
    (judged,) = (row for row in timed if row["method"] == "judged")
    assert judged["kernel"] == named
    assert 0 < judged["relative_rms_u11"] < 1e-6
    if beside is None:
        assert judged["held_bytes"] >= 0
    else:
        assert judged["held_bytes"] == beside
