"""Where a training step's time goes: what is made of a profiler's kernels."""

from __future__ import annotations

import pytest
import torch

from experiments.training.profiled import AT, CIFAR, key, main, said, shares


def test_fallbacks_that_computed_something_are_counted() -> None:
    spans = [("winolab_direct_split", 900.0), ("winolab_direct_split", 100.0)]
    spans += [("winolab_gamma_ffma_fallback", us) for us in (1.5, 444.0, 1.5)]
    spans += [("relu", 50.0)]
    found = shares(spans)
    assert found["gpu_ms"] == pytest.approx(1.497)
    assert found["longest"]["winolab_direct_split"] == [1.0, 2]
    assert found["fallbacks"] == {"winolab_gamma_ffma_fallback": [0.447, 3, 1]}
    row = {"network": "resnet18", "optimizer": "adam", "batch": 512, "method": "winolab"}
    row |= {"device": "a GPU", "step_ms": 25.0, "losses": [2.3, 1e-4], "profiled": {"8": found}}
    assert key(row) == ("resnet18", "adam", 512, "winolab", "a GPU")
    lines = list(said(row))
    assert lines[0].endswith("25.00 ms a step (median), last loss 0.0001")
    assert lines[-1].endswith("winolab_gamma_ffma_fallback: 1 again")


def test_the_steps_are_of_the_run() -> None:
    assert max(AT) < CIFAR.steps


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_profile(tmp_path) -> None:
    with pytest.raises(SystemExit, match="torch sees none"):
        main("adam", "resnet18", 9, tmp_path / "rows.jsonl")
    assert not list(tmp_path.iterdir())
