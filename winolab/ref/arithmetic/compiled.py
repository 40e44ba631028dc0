"""The sums of ``accumulate`` compiled by Numba, where it is installed: the same bits, sooner.

FP32 sums run in float32, whose multiply-add the processor fuses. All others run in float64: a sum
rounded to odd there rounds to the format as the exact one does (``eft.odd_add``), and adding and
subtracting 1.5·2^52 spacings rounds to a multiple of the spacing.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types, vectorize
from numba.extending import intrinsic as _intrinsic
from numpy.typing import NDArray

from winolab.ref.arithmetic.formats import Format

intrinsic: Any = _intrinsic  # whose first argument is not the caller's
KINDS = {"sequential": 0, "two_level": 1, "pairwise": 2, "kahan": 3}
EXPONENT, SIGN = 0x7FF0_0000_0000_0000, np.int64(-(2**63))
INFINITE = np.int64(EXPONENT)
SHIFT = 1.5 * 2.0**52
TILE, CACHED = 1024, 1 << 19  # columns, and bytes of operands that stay in the second-level cache
# Without it, float32's multiply-add would be a slow call.
FUSES = platform.machine() in ("aarch64", "arm64") or bool(
    llvmlite.binding.get_host_cpu_features().get("fma")
)


@intrinsic
def _bits(context, x):
    """The bits of a float64."""

    def code(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), code


@intrinsic
def _real(context, bits):
    """The float64 of those bits."""

    def code(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), code


@intrinsic
def _fma32(context, x, y, z):
    """x * y + z of float32, rounded once."""

    def code(context, builder, signature, arguments):
        return builder.fma(*arguments)

    single = types.float32
    return single(single, single, single), code


@intrinsic
def _trunc(context, x):
    """The integer part."""

    def code(context, builder, signature, arguments):
        function = builder.module.declare_intrinsic("llvm.trunc", [ir.DoubleType()])
        return builder.call(function, arguments)

    return types.float64(types.float64), code


@njit
def _binade(x):
    return _real(_bits(x) & EXPONENT)


@njit
def _rounded(x, fmt):
    """Round to nearest, ties to even; None is float32 itself."""
    if fmt is None:
        return x
    unit, low, high, most, over = fmt
    shift = min(max(_binade(x), low), high) * unit * SHIFT
    y = (x + shift) - shift
    sign = _bits(x) & SIGN
    if abs(y) > most:
        y = over
    return _real(_bits(y) | sign)


@njit
def _truncated(x, fmt):
    unit, low, high, most, _ = fmt
    spacing = min(max(_binade(x), low), high) * unit
    y = _trunc(x / spacing) * spacing
    if most < abs(y) < np.inf:
        y = most
    return _real(_bits(y) | (_bits(x) & SIGN))


@njit
def _odd_sum(a, b):
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    bits = _bits(s)
    step = 1 if (error > 0) == (s > 0) else -1
    inexact = (error != 0) & (abs(error) < np.inf) & ((bits & 1) == 0)
    return _real(bits + step if inexact else bits)


@njit
def _multiply_add(x, y, acc, fused, fmt):
    if fmt is None:
        return _fma32(x, y, acc) if fused else x * y + acc
    if fused:
        return _rounded(_odd_sum(x * y, acc), fmt)
    return _rounded(_rounded(x * y, fmt) + acc, fmt)


# Loops, which Numba compiles in a fraction of the time that assignments of slices take.
@njit
def _clear(line):
    for j in range(len(line)):
        line[j] = 0


@njit
def _copy_line(source, at, width, target, to):
    for j in range(width):
        target[to + j] = source[at + j]


@njit
def _copy_columns(source, at, width, target):
    for k in range(len(source)):
        _copy_line(source[k], at, width, target[k], 0)


@njit
def _sequence(a, b, acc, width, first, last, fused, fmt):
    for k in range(first, last):
        x, row = a[k], b[k]
        for j in range(width):
            acc[j] = _multiply_add(x, row[j], acc[j], fused, fmt)


@njit
def _compensated(a, b, acc, lost, width, fused, fmt):
    for k in range(len(a)):
        x, row = a[k], b[k]
        for j in range(width):
            term = _multiply_add(x, row[j], -lost[j], fused, fmt)
            total = _rounded(acc[j] + term, fmt)
            rest = _rounded(_rounded(total - acc[j], fmt) - term, fmt)
            lost[j] = rest if abs(rest) < np.inf else acc.dtype.type(0)
            acc[j] = total


@njit
def _tree(a, b, acc, stack, width, fmt):
    """The sums of 2^i products wait at stack[i], as in a binary counter."""
    depth, total = len(a), stack[len(stack) - 1]
    fours = depth // 4 * 4
    for k in range(0, fours, 4):
        p, q, r, s = b[k], b[k + 1], b[k + 2], b[k + 3]
        for j in range(width):
            first = _rounded(_rounded(a[k] * p[j], fmt) + _rounded(a[k + 1] * q[j], fmt), fmt)
            second = _rounded(_rounded(a[k + 2] * r[j], fmt) + _rounded(a[k + 3] * s[j], fmt), fmt)
            total[j] = _rounded(first + second, fmt)
        level = 2
        while (k >> level) & 1:
            other = stack[level]
            for j in range(width):
                total[j] = _rounded(other[j] + total[j], fmt)
            level += 1
        _copy_line(total, 0, width, stack[level], 0)
    for k in range(fours, depth):
        x, row = a[k], b[k]
        for j in range(width):
            total[j] = _rounded(x * row[j], fmt)
        level = 0
        while (k >> level) & 1:
            other = stack[level]
            for j in range(width):
                total[j] = _rounded(other[j] + total[j], fmt)
            level += 1
        _copy_line(total, 0, width, stack[level], 0)
    level = 0
    while depth >> level:
        if (depth >> level) & 1:
            other = stack[level]
            for j in range(width):
                acc[j] = _rounded(other[j] + acc[j], fmt)
        level += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _summed(a, b, out, tile, kind, block, fused, fmt):
    """out = a @ b, of (G, M, K) and (G, K, N); out is zeros."""
    groups, rows, depth = a.shape
    columns = b.shape[2]
    levels = 2
    while depth >> levels:
        levels += 1
    stack = np.empty((levels + 2 if kind == 2 else 1, tile), a.dtype)
    part, acc = np.empty((depth, tile), a.dtype), np.empty(tile, a.dtype)  # contiguous
    for g in range(groups):
        for start in range(0, columns, tile):
            width = min(tile, columns - start)
            _copy_columns(b[g], start, width, part)
            for i in range(rows):
                line = a[g, i]
                _clear(acc)
                if kind < 2:
                    inner, length = stack[0], block if kind else depth
                    for first in range(0, depth, length):
                        _clear(inner)
                        last = min(first + length, depth)
                        _sequence(line, part, inner, width, first, last, fused, fmt)
                        if kind:
                            for j in range(width):
                                acc[j] = _rounded(acc[j] + inner[j], fmt)
                        else:
                            _copy_line(inner, 0, width, acc, 0)
                elif kind == 2:
                    _tree(line, part, acc, stack, width, fmt)
                else:
                    _clear(stack[0])
                    _compensated(line, part, acc, stack[0], width, fused, fmt)
                _copy_line(acc, 0, width, out[g, i], start)


@njit
def _reach(x, lowest):
    """The binade of x as its format has it, of subnormal numbers ``lowest``; 0 of 0."""
    size = _binade(x)
    return max(size, lowest) if size > 0 else 0.0


@njit
def _spacing(sizes, part, inner, total, inverse, width, first, last, fmt, extra, lowest):
    """1 over the unit of the last bit that is kept, and the sum before in that unit."""
    unit, low, _, _, _ = fmt
    for j in range(width):
        inverse[j] = abs(inner[j])
    k = first
    while k + 4 <= last:
        p, q, r, s = part[k], part[k + 1], part[k + 2], part[k + 3]
        for j in range(width):
            x = max(_reach(p[j], lowest) * sizes[k], _reach(q[j], lowest) * sizes[k + 1])
            y = max(_reach(r[j], lowest) * sizes[k + 2], _reach(s[j], lowest) * sizes[k + 3])
            inverse[j] = max(inverse[j], max(x, y))
        k += 4
    while k < last:
        p = part[k]
        for j in range(width):
            inverse[j] = max(inverse[j], _reach(p[j], lowest) * sizes[k])
        k += 1
    for j in range(width):
        least = low if inner[j] != 0 else lowest * lowest
        inverse[j] = 1.0 / (max(_binade(inverse[j]), least) * unit * extra)
        total[j] = _trunc(inner[j] * inverse[j])


@njit
def _aligned(line, part, total, inverse, width, first, last):
    """Add what is left of the products to their sum."""
    k = first
    while k + 4 <= last:
        p, q, r, s = part[k], part[k + 1], part[k + 2], part[k + 3]
        for j in range(width):
            x = _trunc(p[j] * line[k] * inverse[j]) + _trunc(q[j] * line[k + 1] * inverse[j])
            y = _trunc(r[j] * line[k + 2] * inverse[j]) + _trunc(s[j] * line[k + 3] * inverse[j])
            total[j] += x + y
        k += 4
    while k < last:
        p = part[k]
        for j in range(width):
            total[j] += _trunc(p[j] * line[k] * inverse[j])
        k += 1


@njit
def _not_finite(line, part, inner, total, inverse, width, first, last):
    """Where an element or the sum before is not finite: the sum of what there is."""
    for j in range(width):
        doubt, found = inner[j] * 0.0, inner[j]
        for k in range(first, last):
            x, y = line[k], part[k, j]
            doubt += _binade(x) * _binade(y) * 0.0
            found += x * y
        if doubt != doubt:  # NaN
            total[j], inverse[j] = found, 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _chunks(a, b, out, tile, ends, chunk, fmt, extra, truncate, lowest, finite):
    """out = a @ b as a Tensor Core sums it; ``ends`` are those of the intervals, ``finite`` says
    that no element is NaN or infinite."""
    groups, rows, depth = a.shape
    columns = b.shape[2]
    high = fmt[2]
    inner, total, inverse = np.empty(tile), np.empty(tile), np.empty(tile)
    part, acc, sizes = np.empty((depth, tile)), np.empty(tile), np.empty(depth)  # contiguous
    for g in range(groups):
        for start in range(0, columns, tile):
            width = min(tile, columns - start)
            _copy_columns(b[g], start, width, part)
            for i in range(rows):
                line, first = a[g, i], 0
                for k in range(depth):
                    sizes[k] = _reach(line[k], lowest)
                _clear(acc)
                for stop in ends:
                    _clear(inner)
                    while first < stop:
                        last = min(first + chunk, stop)
                        given = (width, first, last, fmt, extra, lowest)
                        _spacing(sizes, part, inner, total, inverse, *given)
                        _aligned(line, part, total, inverse, width, first, last)
                        held = True
                        for j in range(width):
                            held &= abs(inner[j]) < np.inf
                        if not (finite and held):
                            _not_finite(line, part, inner, total, inverse, width, first, last)
                        for j in range(width):
                            found = total[j] * (1.0 / inverse[j])
                            y = _truncated(found, fmt) if truncate else _rounded(found, fmt)
                            if abs(found) >= high:
                                y = _real(INFINITE | (_bits(found) & SIGN))
                            inner[j] = y
                        first = last
                    for j in range(width):
                        acc[j] = _rounded(acc[j] + inner[j], fmt)
                _copy_line(acc, 0, width, out[g, i], start)


@vectorize(["float32(float32, float32, float32)"], cache=True)
def fma32(x, y, z):
    """x * y + z elementwise, rounded once."""
    return _fma32(x, y, z)


def numbers(fmt: Format) -> tuple[float, float, float, float, float]:
    """What rounding needs to know of a format."""
    over = np.inf if fmt.infinities else np.nan
    return 2.0 ** (1 - fmt.precision), 2.0**fmt.emin, 2.0 ** (fmt.emax + 1), fmt.max, over


@njit(cache=True, nogil=True, error_model="numpy")
def _round(x, out, fmt):
    for i in range(x.size):
        out[i] = _rounded(np.float64(x[i]), fmt)


def rounded(x: NDArray[Any], fmt: Format) -> NDArray[np.float64]:
    """Numbers rounded to nearest, as ``fmt.round`` does."""
    x = np.ascontiguousarray(x)
    out = np.empty(x.shape)
    _round(x.reshape(-1), out.reshape(-1), numbers(fmt))
    return out


def _tile(depth: int, columns: int, itemsize: int) -> int:
    fits = CACHED // max(1, depth * itemsize) // 64 * 64
    return min(columns, max(128, min(TILE, fits)))


def matmul(
    a: NDArray[Any], b: NDArray[Any], kind: str, block: int, fmt: Format, fused: bool
) -> NDArray[Any]:
    """(G, M, K) @ (G, K, N) in the order of that kind; float32 for FP32, else float64."""
    native = fmt.name == "fp32" and FUSES
    dtype = np.float32 if native else np.float64
    a, b = (np.ascontiguousarray(v, dtype) for v in (a, b))
    out = np.zeros((len(a), a.shape[1], b.shape[2]), dtype)
    tile = _tile(a.shape[2], b.shape[2], out.itemsize)
    _summed(a, b, out, tile, KINDS[kind], block, fused, None if native else numbers(fmt))
    return out


def tensor_core(
    a: NDArray[Any], b: NDArray[Any], ends: NDArray[np.int64], order: Any, fmt: Format, least: float
) -> NDArray[np.float64]:
    """(G, M, K) @ (G, K, N) as ``accumulate`` has it for a Tensor Core."""
    a, b = (np.ascontiguousarray(v, np.float64) for v in (a, b))
    out = np.zeros((len(a), a.shape[1], b.shape[2]))
    tile = _tile(a.shape[2], b.shape[2], 8)
    extra, finite = 2.0**-order.extra_bits, bool(np.isfinite(a).all() and np.isfinite(b).all())
    how = (order.block, numbers(fmt), extra, order.rounding == "truncate", least, finite)
    _chunks(a, b, out, tile, ends, *how)
    return out
