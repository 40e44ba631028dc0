"""Leaves out what this machine cannot run: GPU tests without a GPU, compiles without NVRTC."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.gpu.support.compiled import resources
from tests.gpu.support.pretended import HostLaunch, Library, host_kernels, on_the_cpu
from winolab.gpu import driver
from winolab.gpu.runtime import conv, nvrtc

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
        return host_kernels(source, shared)

    monkeypatch.setattr(conv, "library_of", lambda array: made)
    on_the_cpu(monkeypatch, load, HostLaunch)
    return made
