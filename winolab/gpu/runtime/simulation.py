"""Simulated arithmetics that a GPU runs, by kernels of their order and programs: NumPy's bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any
from weakref import ref

import numpy as np

from winolab.gpu import driver
from winolab.gpu.codegen import simulated, simulated_tiles
from winolab.gpu.codegen.simulated import KERNEL
from winolab.gpu.codegen.simulated_tiles import FP64, OUTPUTS, STATES
from winolab.gpu.params import Kernels
from winolab.gpu.runtime.loader import load
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms.engine import Engine
from winolab.ref.arithmetic.simulated import Arithmetic, Carrier, Float, arithmetic
from winolab.ref.error.bounds import Magnitude

# Elements of states, of sums or of outputs on the GPU at a time: 1 GiB each.
MOST = 1 << 28
UP = 1 + 2.0**-40  # more than FP64 rounds products and sums of gains down by
Blocks = Iterator[tuple[np.ndarray, Carrier]]


@dataclass(frozen=True)
class OnGpu(Float):
    """A Float whose matrix products are summed on CuPy's current device, where whole tiles are
    transformed too if the transforms are in FP32. Carriers are NumPy's.
    """

    def summed_products(self, a: Carrier, b: Carrier) -> Carrier:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        (rows, depth), columns = a.shape[-2:], b.shape[-1]
        shape = (*batch, rows, columns)
        if depth == 0 or math.prod(shape) == 0:
            return np.zeros(shape)
        edge = simulated.tile(self.accumulation)
        a = simulated.operand(np.broadcast_to(a, (*batch, rows, depth)), edge)
        b = np.broadcast_to(b, (*batch, depth, columns))
        b = simulated.operand(np.swapaxes(b, -1, -2), edge)
        cp = driver.cupy()
        filled = (len(a), a.shape[-1], b.shape[-1], depth)
        y = _sums(self, cp.asarray(a), cp.asarray(b), filled)
        got = cp.asnumpy(y)[:, :rows, :columns]
        return got.reshape(shape).astype(np.float64)

    def tiles(self, engine: Any, x: np.ndarray, w: np.ndarray, ids: np.ndarray) -> Blocks | None:
        """Blocks that the GPU gathers, transforms, multiplies and transforms back."""
        whole = self.parts == 1 and not (self.scale or self.filters or self.sums or self.outputs)
        in_fp32 = self.fused and self.transform.name == "fp32"
        if not (whole and in_fp32 and _served(engine, ids, self.asarray(x[:0]))):
            return None
        return _tiles(self, engine, x, w, ids)


@dataclass(frozen=True)
class OracleOnGpu(Float):
    """FP64 whose direct convolutions of FP32 numbers run on CuPy's current device, in order."""

    def tiles(self, engine: Any, x: np.ndarray, w: np.ndarray, ids: np.ndarray) -> Blocks | None:
        """Blocks that the GPU gathers and multiplies; None but for direct convolutions in FP32."""
        ops = [p.ops for of in engine.programs for p in (of.AT, of.G, of.BT)]
        one = all(s.tile.alpha == 1 for s in engine.region.segments) and not any(ops)
        return _tiles(self, engine, x, w, ids) if one and _served(engine, ids, x, w) else None


@dataclass(eq=False)
class MagnitudeOnGpu(Magnitude):
    """A Magnitude that CuPy's current device runs, of FP32 numbers. The largest ones it met are
    bounded by programs' gains, not kept: a bound is a little larger where numbers may underflow,
    and is infinite where these might overflow.
    """

    def tiles(self, engine: Any, x: np.ndarray, w: np.ndarray, ids: np.ndarray) -> Blocks | None:
        """Blocks that the GPU gathers, transforms, multiplies and transforms back."""
        if not _served(engine, ids, x, w):
            return None
        peak = float(np.max(np.abs(x), initial=0.0))
        before, behind = (
            UP * math.prod(simulated_tiles.magnitude(getattr(p, name))[1] for p in engine.programs)
            for name in ("BT", "AT")
        )
        largest = float(np.max(np.abs(engine.filters(w)), initial=0.0))
        self.stored = max(self.stored, peak)
        self.transformed = max(self.transformed, before * peak)
        left, right = self.operands
        self.operands = max(left, before * peak), max(right, largest)
        depth = math.prod(engine.region.pieces(engine.problem)) * engine.problem.in_channels
        self.summed = max(self.summed, UP * depth * before * peak * largest)
        self.results = max(self.results, behind * self.summed)
        return _tiles(self, engine, x, w, ids)


def _served(engine: Engine, ids: np.ndarray, *operands: np.ndarray) -> bool:
    """Whether the kernels know such tiles: of FP32 numbers, in one order of summation."""
    plain = type(engine) is Engine and engine.order is None and len(ids) > 0
    single = all(v.dtype == np.float32 for v in operands)
    return plain and single and engine.problem.ndim <= simulated_tiles.DIMENSIONS


def _tiles(
    run: OnGpu | OracleOnGpu | MagnitudeOnGpu,
    engine: Engine,
    x: np.ndarray,
    w: np.ndarray,
    ids: np.ndarray,
) -> Blocks:
    """The engine's blocks; of an OracleOnGpu, which transforms nothing, and magnitudes in FP64."""
    cp, magnitudes = driver.cupy(), isinstance(run, Magnitude)
    narrow = run if isinstance(run, OnGpu) else None
    edge = simulated.tile(narrow.accumulation) if narrow else simulated_tiles.TILE
    number = np.float64 if magnitudes else np.float32
    u = engine.filters(w)
    u = u.reshape(-1, *u.shape[-2:])
    states, depth, channels = u.shape
    if depth == 0 or channels == 0:
        empty = np.zeros((len(ids), channels), np.float32 if narrow else np.float64)
        yield engine.positions(*_where(engine, ids)), empty
        return
    u = np.asarray(narrow.factor(u)) if narrow else np.abs(u) if magnitudes else u
    filters = simulated.operand(np.swapaxes(u, -1, -2), edge, number)
    right, columns = cp.asarray(filters), filters.shape[-1]
    product = narrow.product if narrow and narrow.product.name != "fp32" else None
    programs, taps = engine.programs, [s.tile.r for s in engine.region.segments]
    if magnitudes:
        programs = tuple(_magnitudes(of) for of in programs)
    source = simulated_tiles.around(programs, taps, product, magnitudes)
    around, along = _loaded(source, STATES, OUTPUTS), simulated_tiles.along(engine)
    outputs = math.prod(s.tile.n for s in engine.region.segments)
    rows = _placed(x, run if isinstance(run, Float) else None)
    step = max(1, MOST // max(states * depth, states * columns, outputs * channels) // edge) * edge
    for first in range(0, len(ids), step):
        some = np.ascontiguousarray(ids[first : first + step], np.int64)
        count = len(some)
        filled = count + -count % edge
        at, v = cp.asarray(some), cp.empty((states, depth, filled), number)
        pointers = [a.data.ptr for a in (rows, at, v)]
        shape = (count, filled, depth, engine.problem.in_channels)
        simulated_tiles.launch_states(around, pointers, shape, along)
        m = _sums(run, v, right, (states, filled, columns, depth))
        if narrow or magnitudes:
            y = cp.empty((outputs, count, channels), number)
            pointers = [a.data.ptr for a in (m, y)]
            simulated_tiles.launch_outputs(around, pointers, (count, filled, channels, columns))
            y = cp.asnumpy(y).reshape(-1, channels)
        else:
            y = cp.asnumpy(m)[0, :count, :channels]
        positions = engine.positions(*_where(engine, some))
        inside = positions >= 0
        yield (positions, y) if inside.all() else (positions[inside], y[inside])


@lru_cache(maxsize=256)
def _magnitudes(of: Programs) -> Programs:
    return Programs(*(simulated_tiles.magnitude(p)[0] for p in (of.AT, of.G, of.BT)))


def _where(engine: Engine, ids: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The tiles' images, and where they are along each dimension."""
    batch, *at = np.unravel_index(ids, (engine.problem.batch, *engine.region.tiles))
    return batch, at


def _sums(
    run: OnGpu | OracleOnGpu | MagnitudeOnGpu, a: Any, b: Any, shape: tuple[int, int, int, int]
) -> Any:
    """aᵀ b on the device; ``shape``: matrices, rows, columns, K, filled up."""
    cp, (count, rows, columns, depth) = driver.cupy(), shape
    if not isinstance(run, OnGpu):
        y = cp.empty((count, rows, columns), np.float64)
        kernels = _loaded(simulated_tiles.oracle(isinstance(run, Magnitude)), FP64)
        simulated_tiles.launch_oracle(kernels, [v.data.ptr for v in (a, b, y)], shape)
        return y
    y = cp.empty((count, rows, columns), np.float32)
    levels = depth.bit_length()
    order, fmt = run.accumulation, run.accumulate
    source = simulated.source(order, fmt, run.fused, levels, run.product)
    kernels = _loaded(source, KERNEL)
    pointers = [v.data.ptr for v in (a, b, y)]
    simulated.launch(kernels, pointers, shape, simulated.tile(run.accumulation))
    return y


def _loaded(source: str, *names: str) -> Kernels:
    index = driver.cupy().cuda.Device().id
    return load(source, f"simulated {names[0]}", dict.fromkeys(names, 0), index)


_KEPT: dict[str, Any] = {}  # the last array that nobody writes to, and its copy on the device


def _placed(x: np.ndarray, run: Float | None) -> Any:
    """x on the device, as ``run`` stores it; of one that is read-only, the last copy is kept."""
    cp = driver.cupy()
    narrow = run if run and run.storage.precision < 24 else None
    key = (narrow and narrow.storage, cp.cuda.Device().id)
    kept = _KEPT.get("x")
    if kept and kept[0]() is x and kept[1] == key:
        return kept[2]
    _KEPT.clear()  # before the next is there
    stored = narrow.asarray(x) if narrow else x
    made = cp.asarray(np.ascontiguousarray(stored, np.float32))
    if not x.flags.writeable:
        _KEPT["x"] = ref(x), key, made
    return made


def on_gpu(run: Arithmetic) -> OnGpu:
    """The same arithmetic on a GPU.

    Raises ValueError where it stays on the CPU: exact numbers, mpmath's, sums in FP64.
    """
    if not isinstance(run, Float) or run.accumulation.kind not in simulated.ORDERS:
        raise ValueError(
            f"precision {run.name} is computed on the CPU alone: leave gpu=True, or --gpu, out, or "
            "take a simulated format such as 'fp32'"
        )
    return OnGpu(**{field.name: getattr(run, field.name) for field in fields(run)})


def oracle_on_gpu() -> OracleOnGpu:
    """FP64, the oracle of simulated arithmetics, on a GPU."""
    run = arithmetic("fp64")
    return OracleOnGpu(**{field.name: getattr(run, field.name) for field in fields(Float)})
