"""cuBLASLt on the CPU: what descriptors say, of matrices in host memory, multiplied by NumPy.

Numbers are written out here once more, from CUDA's headers: attributes with their sizes and usual
values. What a caller leaves out has the header's default, so that a pitch, a transposition or a
type that is wrong gives a wrong result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from winolab.gpu.cublaslt import Heuristic

KINDS = {0: np.dtype("f4"), 2: np.dtype("f2"), 14: np.dtype(ml_dtypes.bfloat16)}
# Attributes: bytes, and the default.
OPERATION = {2: (4, 0), 3: (4, 0), 4: (4, 0), 5: (4, 0), 7: (4, 1)}
BATCH, APART = 5, 6  # of a matrix
MATRIX = {BATCH: (4, 1), APART: (8, 0)}
PREFERENCE = {0: (4, 0), 1: (8, 0), 3: (4, 7), **dict.fromkeys(range(5, 9), (4, 256))}
COMPUTE_32F, REAL_32F = 68, 0
INVALID, UNSUPPORTED = 7, 15
ALGORITHM = 0x51


class StandIn:
    """The library's functions, and what they were asked."""

    def __init__(self) -> None:
        self.alive: dict[int, tuple[str, dict[int, int]]] = {}
        self.heuristics = 0
        self.products: list[dict[str, Any]] = []
        self.spare = 256  # bytes of the workspace that the algorithm leaves
        self.status = 0  # of a product
        self.cublasLtGetStatusName = lambda status: {
            INVALID: b"CUBLAS_STATUS_INVALID_VALUE", UNSUPPORTED: b"CUBLAS_STATUS_NOT_SUPPORTED",
        }[status.value]  # fmt: skip

    def _create(self, place: Any, kind: str, values: dict[int, int]) -> int:
        number = len(self.alive) + 100 * (1 + self.heuristics)
        while number in self.alive:
            number += 1
        self.alive[number] = kind, values
        place._obj.value = number
        return 0

    def cublasLtMatrixLayoutCreate(self, place, kind, rows, columns, pitch) -> int:
        assert isinstance(rows, ctypes.c_uint64)
        assert isinstance(columns, ctypes.c_uint64)
        assert isinstance(pitch, ctypes.c_int64)
        if pitch.value < rows.value:
            return INVALID
        values = {"kind": kind.value, "rows": rows.value, "columns": columns.value}
        values |= {"pitch": pitch.value, **{k: v for k, (_, v) in MATRIX.items()}}
        return self._create(place, "layout", values)  # pyright: ignore[reportArgumentType]

    def cublasLtMatmulDescCreate(self, place, compute, scale) -> int:
        assert (compute.value, scale.value) == (COMPUTE_32F, REAL_32F)
        return self._create(place, "operation", {k: v for k, (_, v) in OPERATION.items()})

    def cublasLtMatmulPreferenceCreate(self, place) -> int:
        return self._create(place, "preference", {k: v for k, (_, v) in PREFERENCE.items()})

    def _set(self, kind: str, known: dict[int, tuple[int, int]]) -> Callable[..., int]:
        def set_attribute(of, attribute, value, size) -> int:
            if known[attribute.value][0] != size.value:
                return INVALID
            found, values = self.alive[of.value]
            assert found == kind
            values[attribute.value] = value._obj.value
            return 0

        return set_attribute

    @property
    def cublasLtMatmulDescSetAttribute(self) -> Callable[..., int]:
        return self._set("operation", OPERATION)

    @property
    def cublasLtMatrixLayoutSetAttribute(self) -> Callable[..., int]:
        return self._set("layout", MATRIX)

    @property
    def cublasLtMatmulPreferenceSetAttribute(self) -> Callable[..., int]:
        return self._set("preference", PREFERENCE)

    def _destroy(self, of) -> int:
        del self.alive[of.value]
        return 0

    cublasLtMatrixLayoutDestroy = cublasLtMatmulDescDestroy = _destroy
    cublasLtMatmulPreferenceDestroy = _destroy

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle, operation, a, b, c, d, preference, most, place, count
    ) -> int:
        assert (handle.value, most.value, c) == (1, 1, d)
        self.heuristics += 1
        values = self.alive[preference.value][1]
        assert values[0] == 0
        assert values[3] == 2  # no sums in the result, none in its type
        assert len({values[i] for i in range(5, 9)}) == 1
        found = place._obj
        assert ctypes.sizeof(found) == 96
        found.algorithm[0], found.algorithm[1] = ALGORITHM, values[5]
        found.workspace = max(0, values[1] - self.spare)
        found.state = 0
        count._obj.value = 1
        return 0

    def cublasLtMatmul(
        self, handle, operation, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm,
        workspace, size, stream,
    ) -> int:  # fmt: skip
        if self.status:
            return self.status
        factors = [ctypes.c_float.from_address(v.value).value for v in (alpha, beta)]
        assert (handle.value, *factors) == (1, 1.0, 0.0)
        assert (c.value, of_c.value) == (d.value, of_d.value)
        heuristic = Heuristic.from_address(algorithm.value)
        token, alignment = heuristic.algorithm[:2]
        assert token == ALGORITHM
        needed = heuristic.workspace
        if needed > size.value:
            return INVALID
        (images,) = {self.alive[of.value][1][BATCH] for of in (of_a, of_b, of_d)}
        if needed:
            assert workspace.value % 256 == 0
            ctypes.memset(workspace.value, 0xFF, needed)
        set_to = self.alive[operation.value][1]
        turned = set_to[3], set_to[4]
        for image in range(images):
            places = [self.place(p.value, of, image) for p, of in ((a, of_a), (b, of_b), (d, of_d))]
            if any(place % alignment for place in places):
                return INVALID
            matrices = []
            for place, of, transposed in zip(places, (of_a, of_b), turned, strict=False):
                matrix = self.matrix(place, of).astype(np.float64)
                matrices.append(matrix.T if transposed else matrix)
            result = self.matrix(places[2], of_d)
            with np.errstate(all="ignore"):
                result[...] = (matrices[0] @ matrices[1]).astype(np.float32).astype(result.dtype)
        self.products.append({"stream": stream.value, "workspace": size.value, **{
            name: self.alive[of.value][1] for name, of in (("a", of_a), ("b", of_b), ("d", of_d))
        }, "alignment": alignment, "images": images})  # fmt: skip
        return 0

    def place(self, address: int, of: Any, image: int) -> int:
        """Where that image's matrix begins."""
        v = self.alive[of.value][1]
        return address + image * v[APART] * KINDS[v["kind"]].itemsize  # pyright: ignore

    def matrix(self, address: int, of: Any) -> np.ndarray:
        """The matrix there, its columns one after another."""
        kind, v = self.alive[of.value]
        assert kind == "layout"
        rows, columns, pitch = (v[name] for name in ("rows", "columns", "pitch"))  # pyright: ignore
        dtype = KINDS[v["kind"]]  # pyright: ignore
        size = dtype.itemsize * (pitch * (columns - 1) + rows)
        memory = (ctypes.c_uint8 * size).from_address(address)
        flat = np.frombuffer(memory, np.uint8).view(dtype)
        steps = (dtype.itemsize, pitch * dtype.itemsize)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), steps)
