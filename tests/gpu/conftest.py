"""Leaves out what this machine cannot run: GPU tests without a GPU, compiles without NVRTC."""

from __future__ import annotations

from winolab.gpu import launch, nvrtc


def _works(call) -> bool:
    try:
        call()
    except RuntimeError:
        return False
    return True


collect_ignore = [] if _works(nvrtc.library) else ["test_nvrtc.py"]


def pytest_collection_modifyitems(config, items) -> None:
    if _works(launch.cupy):
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
