"""The library itself, where there is one: its descriptors need neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.families.cublaslt.cases import DIRECTIONS, PRECISIONS, PROBLEMS, offered
from winolab.gpu import cublaslt, machine
from winolab.gpu.families.cublaslt.launch import parameters
from winolab.gpu.machine import MachineError
from winolab.gpu.params import View
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.problem import Problem, shapes

NOT_INITIALIZED = 1
# Attributes of a matrix and their types, with the key of what they are asked for.
MATRIX = {0: ctypes.c_uint32, 1: ctypes.c_int32, 2: c_uint64, 3: c_uint64, 4: ctypes.c_int64}
IMAGES = {5: ctypes.c_int32, 6: ctypes.c_int64}


class Handed:
    """The library, without the heuristics that need a GPU: they read the descriptors back."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def read(self, what: str, of: c_void_p, attribute: int, kind: Any) -> int:
        value, written = kind(), c_size_t()
        get = getattr(self.library, f"cublasLt{what}GetAttribute")
        size = c_size_t(ctypes.sizeof(kind))
        assert not get(of, c_int(attribute), byref(value), size, byref(written))
        assert written.value == size.value
        return value.value

    def cublasLtMatmulAlgoGetHeuristic(self, handle, operation, *rest) -> int:
        *matrices, preference, _, _place, count = rest
        self.asked.append(
            {
                "matrices": [
                    tuple(self.read("MatrixLayout", of, k, t) for k, t in MATRIX.items())
                    for of in matrices
                ],
                "images": [
                    tuple(self.read("MatrixLayout", of, k, t) for k, t in IMAGES.items())
                    for of in matrices
                ],
                "operation": [
                    self.read("MatmulDesc", operation, k, ctypes.c_int32) for k in (0, 1, 3, 4)
                ],
                "workspace": self.read("MatmulPreference", preference, 1, c_uint64),
                "others": [
                    self.read("MatmulPreference", preference, k, ctypes.c_uint32)
                    for k in (3, 5, 6, 7, 8)
                ],
            }
        )
        count._obj.value = 1
        return 0


@pytest.fixture(scope="module")
def real() -> Any:
    try:
        return machine.cublaslt()
    except MachineError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_descriptors_say_what_was_asked(direction: str, precision: str, real: Any) -> None:
    """Numbers and sizes of attributes are the library's own: it refuses others."""
    for problem in PROBLEMS.values():
        for p in offered(problem, direction, precision, out_dtype="float32"):
            handed = Handed(real)
            views = [
                ArrayLayout.fresh(shape).view(256 * (1 + i), filter=i == (2 if p.gradient else 1))
                for i, shape in enumerate(shapes(direction, problem))
            ]
            struct = parameters(p, *views, workspace=4096).buffer()
            cublaslt.Call(cublaslt.Matmul(handed, 1, 0), ctypes.addressof(struct))
            (asked,) = handed.asked
            rows, columns, depth = p.sizes
            first, second, out, same = asked["matrices"]
            kind = {"fp32": 0, "fp16": 2, "bf16": 14}[precision]
            turned = asked["operation"][2:]
            assert asked["operation"][:2] == [68, 0]
            assert turned == [int(direction == "forward"), int(p.gradient)]
            assert first[:2] == second[:2] == (kind, 0)
            assert first[2:4] == ((depth, rows) if turned[0] else (rows, depth))
            assert second[2:4] == ((columns, depth) if turned[1] else (depth, columns))
            assert out == same == (0, 0, rows, columns, rows)
            assert (first[4], second[4]) == (first[2], second[2])  # arrays without gaps
            assert (asked["workspace"], asked["others"]) == (p.workspace, [2, 16, 16, 16, 16])
            assert asked["images"] == [(1, 0)] * 4


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_descriptors_of_planes_have_an_image_each(precision: str, real: Any) -> None:
    """Maps have the distance of images; the filter is every image's."""
    problem = Problem.of((2, 4, 6, 64), (32, 1, 1, 64))
    (p, *_) = offered(problem, "forward", precision, planes=True)
    handed = Handed(real)
    x, y = (ArrayLayout.fresh(s).channels_first() for s in (problem.x_shape, problem.y_shape))
    x, y = (replace(each, order="nchw").view(256, filter=False) for each in (x, y))
    w = ArrayLayout.fresh(problem.w_shape).view(512, filter=True)
    struct = parameters(p, x, w, y, workspace=4096).buffer()
    cublaslt.Call(cublaslt.Matmul(handed, 1, 0), ctypes.addressof(struct))
    (asked,) = handed.asked
    sizes = [each[2:] for each in asked["matrices"]]
    assert sizes == [(24, 64, 24), (64, 32, 64), (24, 32, 24), (24, 32, 24)]
    assert asked["operation"][2:] == [0, 0]
    assert asked["images"] == [(2, 24 * 64), (2, 0), (2, 24 * 32), (2, 24 * 32)]
    assert asked["others"][1:] == [16] * 4


def test_what_the_library_returns_is_as_long_as_its_structs(real: Any) -> None:
    """Without a GPU the heuristics refuse, and say so; the version is one that is known."""
    assert ctypes.sizeof(cublaslt.Heuristic) == 96
    assert cublaslt.Heuristic.workspace.offset == 64
    assert cublaslt.Heuristic.state.offset == 72
    assert int(cublaslt.version().split(".")[0]) in (12, 13)
    name = real.cublasLtGetStatusName
    name.restype = ctypes.c_char_p
    assert name(c_int(NOT_INITIALIZED)) == b"CUBLAS_STATUS_NOT_INITIALIZED"
    assert name(c_int(cublaslt.UNSUPPORTED)) == b"CUBLAS_STATUS_NOT_SUPPORTED"


def test_rows_that_overlap_or_lie_apart_are_refused() -> None:
    (p, *_) = offered(PROBLEMS["map"], "forward", "fp16")
    w, y = View(0, (64, 0, 0, 0, 1)), View(0, (5 * 7 * 32, 0, 7 * 32, 32))
    for strides in ((5 * 9 * 64, 0, 9 * 64, 64), (0, 0, 0, 0), (5 * 7 * 63, 0, 7 * 63, 63)):
        with pytest.raises(ValueError, match="lie at no one distance"):
            parameters(p, View(0, strides), w, y, 0)
    assert np.frombuffer(parameters(p, View(0, (5 * 7 * 70, 0, 7 * 70, 70)), w, y, 0).data, "q")[
        4 + 4
    ] == 70  # fmt: skip
