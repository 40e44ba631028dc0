"""Loads a translation unit's kernels on a device.

Compiled code is kept in memory per device and on disk per source (``cache``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from winolab.gpu import cublaslt, driver
from winolab.gpu.driver import Kernel, Launchable
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache import cubin, remove
from winolab.gpu.runtime.cache.source import Source

OUT_OF_MEMORY = 2  # of the driver's status


@cache
def _loaded(
    source: Source, title: str, names: tuple[tuple[str, int], ...], index: int
) -> Mapping[str, Kernel]:
    cp = driver.cupy()
    arch = nvrtc.architecture(driver.device(index).compute_capability)
    path = cubin(source, arch, title)
    refused = cp.cuda.driver.CUDADriverError
    with cp.cuda.Device(index):
        try:
            return _kernels(path, names)
        except refused as error:
            if error.status == OUT_OF_MEMORY:  # as where calls are planned again, which lacks it
                raise MemoryError(
                    f"no device memory for the code of {title}: free some ({error})"
                ) from error
            remove(path)  # a broken cache: compile once more
        try:
            return _kernels(cubin(source, arch, title), names)
        except refused as error:
            raise MachineError(_refusal(arch, str(error))) from error


def _kernels(path: Path, names: tuple[tuple[str, int], ...]) -> Mapping[str, Kernel]:
    module = driver.cupy().RawModule(path=str(path))
    kernels = {}
    for name, shared in names:
        function = module.get_function(name)
        if shared:  # the most of all plans: CuPy loads a file once
            most = max(shared, function.max_dynamic_shared_size_bytes)
            function.max_dynamic_shared_size_bytes = most
        kernels[name] = Kernel(name, function.kernel.ptr, shared, module)
    return kernels


def _refusal(arch: str, error: str) -> str:
    """Why the driver does not take what NVRTC made, and what to change."""
    compiler = "{}.{}".format(*nvrtc.version())
    version = driver.cupy().cuda.runtime.driverGetVersion()
    return (
        f"the driver, of CUDA {version // 1000}.{version % 1000 // 10}, refuses code that NVRTC "
        f"{compiler} compiled for {arch} ({error}): update the driver, or install an NVRTC that is "
        "not newer, such as nvidia-cuda-nvrtc-cu12"
    )


def load(
    source: str | Source | None, title: str, shared: Mapping[str, int], index: int
) -> Mapping[str, Launchable]:
    """The kernels of a translation unit on device ``index``, compiled where no cache has them, or
    what a library has in their place where there is no unit.

    ``shared`` names them, with the bytes of dynamic shared memory of each; ``title`` is what the
    log calls them. Raises MachineError that says what to install or change, MemoryError where
    the device has none left for the code.
    """
    if not source:
        return cublaslt.functions(index)
    return _loaded(Source.of(source), title, tuple(shared.items()), index)
