"""The context in which PyTorch's products are those that a row names."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch.backends
from torch.backends import cuda, cudnn

from experiments.harness.pytorch import tf32


def flags() -> dict[str, object]:
    return {
        "cuDNN's TF32": cudnn.allow_tf32,
        "TF32 of products": cuda.matmul.allow_tf32,
        "benchmark": cudnn.benchmark,
        "deterministic": cudnn.deterministic,
        "enabled": cudnn.enabled,
    }


@pytest.fixture(autouse=True)
def settable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags may be set, which modules of PyTorch's own tests, once imported, forbid."""
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
def test_flags_are_set_and_given_back(allowed: bool, deterministic: bool) -> None:
    with cudnn.flags(allow_tf32=not allowed, benchmark=False, deterministic=deterministic):
        before = flags()
        assert before["cuDNN's TF32"] is not allowed
        with tf32(allowed):
            within = {"cuDNN's TF32": allowed, "TF32 of products": allowed, "benchmark": True}
            assert flags() == before | within
            with tf32(not allowed, benchmark=False):
                assert flags()["TF32 of products"] is not allowed
                assert flags()["benchmark"] is False
            assert flags() == before | within
            cudnn.allow_tf32 = not allowed  # as what is timed in turn does
        assert flags() == before


def test_flags_are_given_back_after_an_error() -> None:
    before = flags()
    with pytest.raises(KeyError), tf32(True):
        raise KeyError
    assert flags() == before


def test_the_module_is_imported_without_torch() -> None:
    script = "import sys; import experiments.harness.pytorch; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
