"""Loads kernels of translation units on a device.

Compiled code is kept in memory per device and on disk per source (``cache``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from winolab.gpu import cublaslt, driver
from winolab.gpu.driver import Kernel, Launchable
from winolab.gpu.machine import MachineError
from winolab.gpu.params import MATMUL
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache import cubin, kept, remove
from winolab.gpu.runtime.cache.source import Source

OUT_OF_MEMORY = 2  # of the driver's status


class Asked(NamedTuple):
    """Kernels of a translation unit, with the bytes of dynamic shared memory of each; ``title`` is
    what the log calls it. A library has MATMUL, alone where there is no source."""

    source: str | Source | None
    title: str
    shared: Mapping[str, int]


class Unit(NamedTuple):
    """The same with a source, as ``cache`` tells units apart."""

    source: Source
    title: str
    shared: tuple[tuple[str, int], ...]


@cache
def _loaded(units: tuple[Unit, ...], index: int) -> Mapping[str, Kernel]:
    arch = nvrtc.architecture(driver.device(index).compute_capability)
    kernels: dict[str, Kernel] = {}
    with driver.cupy().cuda.Device(index):
        for unit, path in zip(units, _cubins(units, arch), strict=True):
            kernels |= _loaded_unit(unit, path, arch)
    return kernels


def _cubins(units: Sequence[Unit], arch: str) -> list[Path]:
    """The units' files in the cache; of several, those that it lacks are compiled beside each
    other."""
    found = [kept(unit.source, arch) for unit in units] if len(units) > 1 else [None]
    lacking = [unit for unit, path in zip(units, found, strict=True) if not path]
    if len(lacking) > 1:
        with ThreadPoolExecutor(len(lacking)) as pool:
            made = iter(list(pool.map(lambda unit: cubin(unit.source, arch, unit.title), lacking)))
    else:
        made = iter([cubin(unit.source, arch, unit.title) for unit in lacking])
    return [path or next(made) for path in found]


def _loaded_unit(unit: Unit, path: Path, arch: str) -> Mapping[str, Kernel]:
    refused = driver.cupy().cuda.driver.CUDADriverError
    try:
        return _kernels(path, unit)
    except refused as error:
        if error.status == OUT_OF_MEMORY:  # as where calls are planned again, which lacks it
            raise MemoryError(
                f"no device memory for the code of {unit.title}: free some ({error})"
            ) from error
        remove(path)  # a broken cache: compile once more
    try:
        return _kernels(cubin(unit.source, arch, unit.title), unit)
    except refused as error:
        raise MachineError(_refusal(arch, str(error))) from error


def _kernels(path: Path, unit: Unit) -> Mapping[str, Kernel]:
    module = driver.cupy().RawModule(path=str(path))
    kernels = {}
    for name, shared in unit.shared:
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
    """``load_units`` of one."""
    return load_units([Asked(source, title, shared)], index)


def load_units(asked: Sequence[Asked], index: int) -> Mapping[str, Launchable]:
    """The kernels of a plan's units, by name, on device ``index``, compiled where no cache has
    them, and what a library has.

    Raises MachineError that says what to install or change, MemoryError where the device has none
    left for the code.
    """
    units = tuple(
        Unit(Source.of(source), title, tuple((n, s) for n, s in shared.items() if n != MATMUL))
        for source, title, shared in asked
        if source
    )
    loaded = _loaded(units, index) if units else {}
    library = any(MATMUL in each.shared for each in asked)
    return {**loaded, **cublaslt.functions(index)} if library else loaded
