"""Loads a Plan's kernels and launches them on the caller's stream, through CuPy.

Compiled code is kept in memory per device and on disk per source; ``WINOLAB_CACHE`` moves the
folder, ``WINOLAB_DUMP`` names one that receives plan, source and resource use of what is loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np

from winolab.device import Device
from winolab.gpu import nvrtc
from winolab.gpu.emit import emit
from winolab.gpu.plan import THREADS, Plan, Variant
from winolab.nouns import Tile

log = logging.getLogger("winolab.gpu")

POINTER, LONG, INT = "Q", "q", "i"  # as struct packs them
Field = tuple[str, str]
# The kernels' parameter structs, field for field.
FILTER_PARAMS: list[Field] = [
    *((name, POINTER) for name in ("w", "u")),
    *((f"{name}_stride", LONG) for name in ("m", "c", "depth", "row", "width")),
    *((name, INT) for name in ("out_channels", "channels")),
    *((name, INT) for name in ("taps", "taps_height", "taps_width", "chunks")),
]
PARAMS: list[Field] = [
    *((name, POINTER) for name in ("x", "u", "y")),
    *((f"{array}_{name}", LONG) for array in "xy" for name in ("batch", "depth", "row")),
    *((name, INT) for name in ("x_pixel", "y_pixel")),
    *(
        (f"{what}{dimension}", INT)
        for what in ("", "out_", "pad_", "taps_")
        for dimension in ("depth", "height", "width")
    ),
    *((name, INT) for name in ("channels", "out_channels", "tiles_width", "columns")),
    *((name, INT) for name in ("chunks", "blocks_m", "blocks_row", "items")),
]
# Trailing "0q" pads to the alignment of the widest field, as C does.
FILTER_PACKER, PACKER = (
    Struct("@" + "".join(kind for _, kind in fields) + "0q") for fields in (FILTER_PARAMS, PARAMS)
)
FILTER_M, FILTER_C = 32, 8


@dataclass(frozen=True)
class View:
    """A channels-last array in device memory: address, and strides in elements.

    ``strides`` are those of (batch, depth, height, width); channels are contiguous.
    """

    address: int
    strides: tuple[int, int, int, int]

    def offset(self, elements: int) -> View:
        """The view that begins ``elements`` further on."""
        return View(self.address + 4 * elements, self.strides)


@dataclass(frozen=True)
class FilterView:
    """A filter in device memory: address, and strides of (OC, depth, height, width, IC)."""

    address: int
    strides: tuple[int, int, int, int, int]


@cache
def cupy() -> Any:
    """The module cupy. Raises RuntimeError that says what to install or change."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise RuntimeError(
            "CUDA arrays need CuPy: pip install cupy-cuda12x or cupy-cuda13x, "
            f"whichever nvidia-smi's CUDA version says ({error})"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(
            f"CuPy {cupy.__version__} finds no usable GPU; is the driver at least as new as CuPy's "
            f"CUDA? ({error})"
        ) from error
    if not count:
        raise RuntimeError("no GPU: CuPy counts 0 CUDA devices")
    return cupy


@cache
def device(index: int) -> Device:
    """The GPU of that index."""
    runtime = cupy().cuda.runtime
    p = runtime.getDeviceProperties(index)
    clock = runtime.deviceGetAttribute(runtime.cudaDevAttrClockRate, index) * 1e3
    return Device(
        p["name"].decode(),
        (p["major"], p["minor"]),
        p["multiProcessorCount"],
        clock,
        p["sharedMemPerBlockOptin"],
        p["l2CacheSize"],
        p["totalGlobalMem"],
    )


def run_filter(plan: Plan, group: int, w: FilterView, u: int, index: int) -> None:
    """Transform the filter of ``group`` into the workspace at address ``u``."""
    c, v = plan.correlation, plan.variant
    m_stride, *taps, c_stride = w.strides
    m_total = c.channels if c.rotated else c.out_channels
    address = w.address + 4 * group * m_total * m_stride
    if c.rotated:
        last = sum((r - 1) * s for r, s in zip(c.filter, taps, strict=True))
        address += 4 * last
        taps = [-s for s in taps]
        m_stride, c_stride = c_stride, m_stride
    depth, height, width = plan.outer
    params = _packed(
        FILTER_PACKER,
        (
            address,
            u,
            m_stride,
            c_stride,
            *taps,
            c.out_channels,
            c.channels,
            depth * height * width,
            height,
            width,
            plan.chunks,
        ),
    )
    kernels = load(plan.tile, plan.points, v, index)
    grid = (
        plan.blocks_m * v.bn // FILTER_M,
        plan.chunks * v.kc // FILTER_C,
        depth * height * width,
    )
    kernels.filter(grid, (FILTER_M * FILTER_C,), (params,))


def run(plan: Plan, group: int, x: View, u: int, y: View, index: int) -> None:
    """Launch the main kernel for ``group`` on CuPy's current stream."""
    c = plan.correlation
    x, y = x.offset(group * c.channels), y.offset(group * c.out_channels)
    params = _packed(
        PACKER,
        (
            x.address,
            u,
            y.address,
            *x.strides[:3],
            *y.strides[:3],
            x.strides[3],
            y.strides[3],
            *c.input,
            *c.output,
            *c.padding,
            *plan.outer,
            c.channels,
            c.out_channels,
            plan.tiles_width,
            plan.columns,
            plan.chunks,
            plan.blocks_m,
            plan.blocks_row,
            plan.items,
        ),
    )
    kernels = load(plan.tile, plan.points, plan.variant, index)
    kernels.gamma((plan.grid,), (THREADS,), (params,), shared_mem=plan.shared_memory)


@dataclass(frozen=True)
class Kernels:
    """A variant's two kernels, loaded on one device."""

    filter: Any
    gamma: Any


@cache
def load(tile: Tile, points: str, variant: Variant, index: int) -> Kernels:
    """The kernels of a variant on device ``index``, compiled where the disk cache has none."""
    cp = cupy()
    source = emit(tile, points, variant)
    arch = nvrtc.architecture(device(index).compute_capability)
    path = cubin(source, arch, f"Γ{tile.alpha}({tile.n},{tile.r}) {variant}")
    with cp.cuda.Device(index):
        try:
            module = cp.RawModule(path=str(path))
            gamma = module.get_function("winolab_gamma")
        except cp.cuda.driver.CUDADriverError:
            path.unlink()  # a broken cache: compile once more
            path = cubin(source, arch, f"Γ{tile.alpha}({tile.n},{tile.r}) {variant}")
            module = cp.RawModule(path=str(path))
            gamma = module.get_function("winolab_gamma")
        gamma.max_dynamic_shared_size_bytes = variant.shared_memory(tile.alpha)
        return Kernels(module.get_function("winolab_filter"), gamma)


def _packed(packer: Struct, values: tuple[int, ...]) -> np.ndarray:
    """A struct as CuPy passes one by value: an array of one element without fields."""
    return np.frombuffer(packer.pack(*values), f"V{packer.size}")


def cubin(source: str, arch: str, title: str) -> Path:
    """The file of the compiled source in the cache; written whole or not at all."""
    major, minor = nvrtc.version()
    key = hashlib.sha256(f"{arch} {major}.{minor} {nvrtc.OPTIONS}\n{source}".encode()).hexdigest()
    path = cache_folder() / f"{key[:32]}.cubin"
    dump = os.environ.get("WINOLAB_DUMP")
    if path.exists() and not dump:
        return path
    log.warning("compiling %s for %s", title, arch)
    compiled = nvrtc.compile_cubin(source, arch)
    _write(path, compiled.cubin)
    if dump:
        stem = Path(dump) / key[:12]
        _write(stem.with_suffix(".cu"), source.encode())
        text = f"{title} for {arch}\n" + "".join(
            f"{k} {r}\n" for k, r in compiled.resources.items()
        )
        _write(stem.with_suffix(".txt"), text.encode())
    return path


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("WINOLAB_CACHE") or Path(home) / "winolab")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(name).replace(path)
