"""cuBLASLt's product of matrices as a launch, by ctypes on the library that wheels bring.

Numbers are those of CUDA's public headers (cublasLt.h, cublas_api.h, library_types.h), which are
the same in versions 12 and 13. The library's heuristics choose how a product is computed, once,
when it is recorded: by sizes, distances, alignment, types and workspace alone, so that equal
products are computed alike. Sums that are cut have their parts in FP32 in the workspace and are
added up by a launch of its own; what adds them in the result is left out.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import (
    addressof,
    byref,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from winolab.gpu import driver
from winolab.gpu.driver import Launchable
from winolab.gpu.machine import cublaslt
from winolab.gpu.params import MATMUL, PRODUCT

COMPUTE_32F = 68  # sums, and products of FP32 operands, in FP32: no TF32
REAL_32F = 0  # of the factors before product and result
TRANSPOSED = 1
TRANSA, TRANSB = 3, 4  # attributes of the operation
BATCH, APART = 5, 6  # attributes of a matrix
WORKSPACE, REDUCTIONS, ALIGNMENT = 1, 3, 5  # attributes of preferences; four of alignments
IN_COMPUTE_TYPE = 2  # reductions beside none: parts in FP32 in the workspace
UNSUPPORTED = 15


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class Matmul(Launchable):
    """The function on one device, with the library's handle there."""

    library: Any
    handle: int
    index: int

    name = MATMUL

    def launch(self, grid: tuple[int, int, int], threads: int, params: int, early: bool) -> Call:
        """A product; ``params`` is where the pointer to its struct, PRODUCT's, lies. Raises
        ValueError where the library has no algorithm for it."""
        with on(self.index):
            return Call(self, c_void_p.from_address(params).value or 0)


class Call:
    """One product, or one of each image, as often as wanted, of matrices at the addresses that its
    struct has then."""

    def __init__(self, function: Matmul, struct: int) -> None:
        self.kernel, library = function, function.library
        p = PRODUCT.read(struct)
        made: list[tuple[str, c_void_p]] = []
        weakref.finalize(self, _destroy, library, made).atexit = False

        def create(what: str, *arguments: Any) -> c_void_p:
            found = c_void_p()
            _do(library, f"cublasLt{what}Create", byref(found), *arguments)
            made.append((what, found))
            return found

        def matrix(name: str, kind: int, rows: int, columns: int) -> c_void_p:
            sizes = c_uint64(rows), c_uint64(columns), c_int64(p[f"pitch_{name}"])
            made = create("MatrixLayout", c_int(kind), *sizes)
            if p["images"] > 1:
                _set(library, "MatrixLayout", made, BATCH, c_int32(p["images"]))
                _set(library, "MatrixLayout", made, APART, c_int64(p[f"apart_{name}"]))
            return made

        rows, columns, depth = p["rows"], p["columns"], p["depth"]
        operation = create("MatmulDesc", c_int(COMPUTE_32F), c_int(REAL_32F))
        sides = []
        for name, attribute, shape in (
            ("a", TRANSA, (rows, depth)),
            ("b", TRANSB, (depth, columns)),
        ):
            if p[f"transposed_{name}"]:
                shape = shape[1], shape[0]
                _set(library, "MatmulDesc", operation, attribute, c_int32(TRANSPOSED))
            sides.append(matrix(name, p["kind"], *shape))
        out = matrix("out", p["out_kind"], rows, columns)
        preferences = create("MatmulPreference")
        how = [(WORKSPACE, c_uint64(p["size"])), (REDUCTIONS, c_uint32(IN_COMPUTE_TYPE))]
        how += [(ALIGNMENT + i, c_uint32(p["alignment"])) for i in range(4)]
        for attribute, value in how:
            _set(library, "MatmulPreference", preferences, attribute, value)
        found, count = Heuristic(), c_int()
        asked = (
            c_void_p(function.handle), operation, *sides, out, out, preferences, c_int(1),
            byref(found), byref(count),
        )  # fmt: skip
        name = "cublasLtMatmulAlgoGetHeuristic"
        status = getattr(library, name)(*asked) or (found.state if count.value else UNSUPPORTED)
        if status == UNSUPPORTED:
            raise ValueError(
                f"cuBLASLt has no algorithm for a product of {rows} × {depth} and {depth} × "
                f"{columns} within a workspace of {p['size']} B: name another algorithm"
            )
        _check(library, name, status)
        a, b, c, workspace = (c_void_p.from_address(struct + PRODUCT.offsets[i]) for i in range(4))
        self._stream, self._pointed = c_void_p(), (c_float(1), c_float(0), found)
        one, zero, algorithm = (c_void_p(addressof(each)) for each in self._pointed)
        self._arguments = (
            *(c_void_p(function.handle), operation, one, a, sides[0], b, sides[1], zero),
            *(c, out, c, out, algorithm, workspace, c_size_t(p["size"]), self._stream),
        )
        self._start = partial(getattr(library, MATMUL), *self._arguments)

    def on(self, stream: int) -> None:
        """Where it is launched from now on."""
        self._stream.value = stream

    def start(self) -> int:
        """Launch it: 0, the driver's status of success. Raises RuntimeError with the library's."""
        self.check(self._start())
        return 0

    def check(self, status: int) -> None:
        """Raise RuntimeError with the library's status, if it is none of success."""
        _check(self.kernel.library, MATMUL, status)

    def words(self) -> tuple[int, list[int], int]:
        """As a Launch's: where the arguments lie, which ctypes holds in memory of their own."""
        function = driver.address_of(getattr(self.kernel.library, MATMUL))
        places = [addressof(each) for each in self._arguments]
        return function, places, addressof(self._stream)


@contextmanager
def on(index: int) -> Iterator[None]:
    """Makes a device current, with its context."""
    with driver.cupy().cuda.Device(index):
        driver.make_current(index)
        yield


@cache
def functions(index: int) -> Mapping[str, Matmul]:
    """What stands among the kernels of a device. Raises MachineError without the library."""
    library, handle = cublaslt(), c_void_p()
    with on(index):
        _do(library, "cublasLtCreate", byref(handle))
    return {MATMUL: Matmul(library, handle.value or 0, index)}


def version() -> str:
    """The library's, as 13.1.0. Raises MachineError without it."""
    library = cublaslt()
    library.cublasLtGetVersion.restype = c_size_t
    number = library.cublasLtGetVersion()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _set(library: Any, what: str, of: c_void_p, attribute: int, value: Any) -> None:
    size = c_size_t(ctypes.sizeof(value))
    _do(library, f"cublasLt{what}SetAttribute", of, c_int(attribute), byref(value), size)


def _destroy(library: Any, made: list[tuple[str, c_void_p]]) -> None:
    for what, each in made:
        getattr(library, f"cublasLt{what}Destroy")(each)


def _do(library: Any, name: str, *arguments: Any) -> None:
    _check(library, name, getattr(library, name)(*arguments))


def _check(library: Any, name: str, status: int) -> None:
    if status:
        library.cublasLtGetStatusName.restype = ctypes.c_char_p
        raise RuntimeError(f"{name}: {library.cublasLtGetStatusName(c_int(status)).decode()}")
