"""Leaves out what this machine cannot run: GPU tests without a GPU, compiles without NVRTC."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

import pytest

from tests.gpu import hosted
from tests.gpu.support.compiled import resources
from tests.gpu.support.pretended import HostLaunch, Library, host_encoder
from winolab import calls
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.runtime import conv, loader, nvrtc

# JAX, which reads this when it first computes, would take three quarters of the GPU's memory: those
# of other processes that test there, too.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


def _works(call) -> bool:
    try:
        call()
    except RuntimeError:
        return False
    return True


collect_ignore = [] if _works(nvrtc.library) else ["test_nvrtc.py"]


def pytest_collection_modifyitems(config, items) -> None:
    if _works(driver.cupy):
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def compiled() -> Callable[..., dict[str, nvrtc.Resources]]:
    """What the kernels of a source take, from the table or from NVRTC."""
    return resources


@pytest.fixture
def compiler(monkeypatch) -> list:
    """Stands in for NVRTC; what it was asked to compile."""
    asked = []
    compiled = nvrtc.Compiled(b"\x7fELF", {})
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 2))
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda *a: asked.append(a) or compiled)
    return asked


@pytest.fixture
def library(monkeypatch) -> Library:
    """Pretended arrays and their library; kernels run on the CPU."""
    made = Library()

    def load(source, title, shared, index):
        made.loaded.append(title)
        return {
            name: driver.Kernel(name, cast(int, kernel), kernel.shared, None)
            for name, kernel in hosted.load(source, shared).items()
        }

    monkeypatch.setattr(conv, "library_of", lambda array: made)
    monkeypatch.setattr(driver, "device", lambda index: H100)
    monkeypatch.setattr(driver, "make_current", lambda index: None)
    monkeypatch.setattr(loader, "load", load)
    monkeypatch.setattr(driver, "encoder", host_encoder)
    monkeypatch.setattr(driver, "Launch", HostLaunch)
    monkeypatch.setattr(calls, "kept", {})
    monkeypatch.setattr(calls, "described_by", dict(calls.described_by))
    return made
