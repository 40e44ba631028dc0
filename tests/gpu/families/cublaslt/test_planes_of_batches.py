"""Several images that lie channels first: a product an image, or copies where those are faster."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.gpu.families.cublaslt.cases import (
    BATCHES,
    CORRELATIONS,
    DIRECTIONS,
    PRECISIONS,
    called,
    offered,
    packed,
)
from tests.gpu.families.depthwise.cases import operands, too_far
from tests.gpu.support.pretended import Array
from winolab.device import datasheet
from winolab.gpu import driver
from winolab.gpu.families.cublaslt import cost
from winolab.gpu.families.cublaslt.config import USUAL
from winolab.gpu.families.cublaslt.launch import parameters
from winolab.gpu.params import VECTOR, View
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.problem import Problem, shapes

H200 = datasheet("h200")
GUARD = 16  # elements behind an array's memory
MAP = BATCHES["map"]  # 3×4×6×64 -> 32
WHOLE = Problem.of((3, 8, 16, 16), (8, 1, 1, 16))  # whose sums may be cut
FEW = Problem.of((3, 4, 6, 16), (8, 1, 1, 16))  # whose parts of dw are no larger than the data


def laid(values: np.ndarray, first: int, apart: int, lead: int, among: Any) -> Any:
    """Planes ``apart`` elements apart, images ``first``, in memory of NaN from ``lead`` on."""
    n, *spatial, channels = values.shape
    pixels = math.prod(spatial)
    end = lead + (n - 1) * first + (channels - 1) * apart + pixels
    memory = among.full(end + GUARD, math.nan, values.dtype)
    steps = [math.prod(spatial[i + 1 :]) for i in range(len(spatial))]
    strides = [s * values.itemsize for s in (first, *steps, apart)]
    found = among.lib.stride_tricks.as_strided(memory[lead:], values.shape, strides)
    found[...] = among.asarray(values)
    return found


def spaced(values: np.ndarray, more: int = 0, lead: int = 0, among: Any = np) -> Any:
    """Planes, an image's ``more`` elements behind the last's, ``lead`` behind memory's begin."""
    pixels = math.prod(values.shape[1:-1])
    return laid(values, pixels * values.shape[-1] + more, pixels, lead, among)


def woven(values: np.ndarray, among: Any = np) -> Any:
    """A channel's planes of all images, then the next channel's."""
    pixels = math.prod(values.shape[1:-1])
    return laid(values, pixels, pixels * len(values), 0, among)


def result_of(direction: str, problem: Problem, dtype: Any) -> np.ndarray:
    return np.full(shapes(direction, problem)[2], np.nan, dtype)


def both(direction: str, a: Any, b: Any, lies: Any) -> tuple[Any, Any]:
    """Operands, maps of them laid out so."""
    return lies(a), lies(b) if direction == "backward_filter" else b


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_images_lie_at_any_distance(direction, precision, stand_in, library) -> None:
    """With gaps that vectors divide, one behind the other within a channel, all the same image."""
    p = offered(FEW, direction, precision)[0]
    a, b = operands(FEW, direction, precision)
    filters = direction != "backward_filter"

    def same(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(spaced(values)[:1], values.shape)

    for lies, target in ((spaced, woven), (woven, spaced), (lambda v: spaced(v, 16), spaced)):
        first, second = both(direction, a, b, lies)
        result = result_of(direction, FEW, a.dtype)
        result = target(result) if filters else result
        called(direction, FEW, Array(first), Array(second), out=Array(result))
        assert too_far(p, a, b, result) == 0
    first, second = both(direction, a, b, same)
    got = called(direction, FEW, Array(first), Array(second))
    assert too_far(p, first, second, got.values) == 0
    assert not library.reordered()
    assert [each["images"] for each in stand_in.products] == [3] * 4
    if filters:
        assert {each["b"][6] for each in stand_in.products} == {0}  # of the filter
    assert stand_in.products[-1]["a"][6] == 0


@pytest.mark.parametrize("more", [1, 2, 4])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_addresses_of_all_images_are_as_aligned_as_is_said(direction, more, stand_in) -> None:
    """In FP32 images may begin anywhere: what is promised divides each of their addresses."""
    p = offered(MAP, direction, "fp32")[0]
    a, b = operands(MAP, direction, "fp32")
    result = result_of(direction, MAP, np.float32)
    result = spaced(result, 4) if direction in CORRELATIONS else result
    first, second = both(direction, a, b, partial(spaced, more=more))
    got = called(direction, MAP, Array(first), Array(second), out=Array(result))
    assert too_far(p, a, b, got.values) == 0
    assert stand_in.products[-1]["images"] == 3
    assert stand_in.products[-1]["alignment"] == 4 * more


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_planes_of_odd_channels_are_aligned(direction, stand_in, library) -> None:
    """Where rows of channels would not be, but for those of filters: so it is predicted."""
    for problem, is_slow in (
        (Problem.of((3, 4, 6, 16), (5, 1, 1, 16)), False),
        (Problem.of((3, 4, 6, 5), (16, 1, 1, 5)), direction in CORRELATIONS),
    ):
        p, *_ = offered(problem, direction, "fp16", planes=True)
        assert cost.misaligned(p) == is_slow
        a, b = operands(problem, direction, "fp16")
        result = result_of(direction, problem, a.dtype)
        result = spaced(result) if direction in CORRELATIONS else result
        first, second = both(direction, a, b, spaced)
        called(direction, problem, Array(first), Array(second), out=Array(result))
        assert too_far(p, a, b, result) == 0
        assert not {"a", "out"} & set(library.reordered())
        assert stand_in.products[-1]["images"] == 3
        assert stand_in.products[-1]["alignment"] == 16


@pytest.mark.parametrize("direction", CORRELATIONS)
def test_what_does_not_fit_is_copied(direction, stand_in, library) -> None:
    """Images or planes no halves of vectors apart, rows with gaps, addresses of elements."""
    p = offered(MAP, direction, "fp16")[0]
    a, b = operands(MAP, direction, "fp16")
    wide = np.full((*a.shape[:2], 8, a.shape[-1]), np.nan, a.dtype)
    rows = np.moveaxis(spaced(wide), -1, 1)[..., :6]
    rows = np.moveaxis(rows, 1, -1)
    rows[...] = a
    unaligned = spaced(a, lead=1)
    assert unaligned.ctypes.data % VECTOR
    for first in (spaced(a, 2), rows, unaligned):
        result = spaced(result_of(direction, MAP, a.dtype))
        called(direction, MAP, Array(first), Array(b), out=Array(result))
        assert too_far(p, a, b, result) == 0
        copied = set(library.reordered())
        assert "a" in copied
        assert "out" not in copied  # which is planes still
    assert [each["images"] for each in stand_in.products] == [3, 3, 3]


@pytest.mark.parametrize(
    "problem",
    [
        Problem.of((3, 4, 6, 1), (8, 1, 1, 1)),
        Problem.of((3, 4, 6, 8), (1, 1, 1, 8)),
        Problem.of((3, 1, 1, 8), (5, 1, 1, 8)),
        Problem.of((1, 1, 1, 1), (1, 1, 1, 1)),
        Problem.of((3, 4, 6, 1), (1, 1, 1, 1)),
        Problem.of((5, 3, 7), (4, 1, 7)),
    ],
    ids=str,
)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sizes_of_one(direction, precision, problem, stand_in) -> None:
    """A channel, a pixel, an image, among gaps and without."""
    p = offered(problem, direction, precision)[0]
    a, b = operands(problem, direction, precision)
    for more in (0, 8):
        result = result_of(direction, problem, a.dtype)
        result = spaced(result, more) if direction in CORRELATIONS else result
        first, second = both(direction, a, b, partial(spaced, more=more))
        called(direction, problem, Array(first), Array(second), out=Array(result))
        assert too_far(p, a, b, result) == 0


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_results_in_float32_lie_in_planes(precision, stand_in, library) -> None:
    x, w = operands(MAP, "forward", precision)
    p = offered(MAP, "forward", precision, out_dtype="float32")[0]
    got = called("forward", MAP, Array(spaced(x)), Array(w), out_dtype="float32").values
    assert too_far(p, x, w, got) == 0
    assert not library.reordered()
    assert np.moveaxis(got, -1, 1).flags.c_contiguous


def test_an_epilogue_is_a_pass_behind(stand_in, library) -> None:
    """A residual that lies otherwise is copied to where the result lies."""
    x, w = operands(MAP, "forward", "fp32")
    bias = np.linspace(-1, 1, MAP.out_channels).astype(np.float32)
    values = operands(MAP, "forward", "fp32", seed=1)[0][..., : MAP.out_channels]
    plain = called("forward", MAP, Array(spaced(x)), Array(w)).values
    assert not library.reordered()
    due = np.maximum(plain + bias + values, np.float32(0))
    for residual, copied in ((spaced(values), []), (values.copy(), ["residual"])):
        added = {"bias": Array(bias), "residual": Array(residual), "activation": "relu"}
        got = called("forward", MAP, Array(spaced(x)), Array(w), **added).values
        assert library.reordered() == [*copied, "out"]
        assert (got == due).all()


def test_results_over_what_is_read_are_written_anew(stand_in, library) -> None:
    """A result in x's own memory; beside x among the same planes it is written in place."""
    problem = Problem.of((3, 4, 6, 32), (32, 1, 1, 32))
    p = offered(problem, "forward", "fp32")[0]
    x, w = operands(problem, "forward", "fp32")
    lies = spaced(x)
    before = library.copied
    got = called("forward", problem, Array(lies), Array(w), out=Array(lies))
    assert got.values is lies
    assert too_far(p, x, w, lies) == 0
    assert library.copied == before + 1
    both = spaced(np.concatenate([x, np.full_like(x, np.nan)], -1))
    given, out = both[..., :32], both[..., 32:]
    called("forward", problem, Array(given), Array(w), out=Array(out))
    assert too_far(p, x, w, out) == 0
    assert (given == x).all()
    assert library.copied == before + 1


@pytest.mark.parametrize("precision", PRECISIONS)
def test_gradients_of_images_are_added_up(precision, stand_in, library) -> None:
    """By the launch that adds up buckets, to a gradient of any strides, in float32 or rounded once;
    rows beside planes, too."""
    p = offered(FEW, "backward_filter", precision)[0]
    x, dy = operands(FEW, "backward_filter", precision)
    for first, second in ((spaced(x), spaced(dy)), (spaced(x), dy), (x, spaced(dy))):
        around = np.full((8, 1, 1, 24), np.nan, x.dtype)
        out = around[..., 4:20]
        called("backward_filter", FEW, Array(first), Array(second), out=Array(out))
        assert too_far(p, x, dy, out) == 0
        assert np.isnan(around.astype(float)).sum() == 8 * 8
        assert stand_in.products[-1]["images"] == 3
        assert stand_in.products[-1]["d"]["kind"] == 0
    assert not library.reordered()
    wide = offered(FEW, "backward_filter", precision, out_dtype="float32")[0]
    got = called("backward_filter", FEW, Array(spaced(x)), Array(spaced(dy)), out_dtype="float32")
    assert too_far(wide, x, dy, got.values) == 0


def test_gradients_whose_parts_take_more_than_the_data_are_copied(stand_in, library) -> None:
    """Nor are parts made beyond a limit of workspace, or of arrays that are no planes."""
    p = offered(MAP, "backward_filter", "fp16")[0]
    x, dy = operands(MAP, "backward_filter", "fp16")
    got = called("backward_filter", MAP, Array(spaced(x)), Array(spaced(dy)))
    assert too_far(p, x, dy, got.values) == 0
    assert {"a", "b"} <= set(library.reordered())
    x, dy = operands(FEW, "backward_filter", "fp16")
    p = offered(FEW, "backward_filter", "fp16")[0]
    given = Array(spaced(x)), Array(spaced(dy))
    for limit, copied in ((0, {"a", "b"}), (1 << 20, set())):
        got = called("backward_filter", FEW, *given, workspace_limit=limit)
        assert too_far(p, x, dy, got.values) == 0
        assert set(library.reordered()) == copied
    assert [each["images"] for each in stand_in.products] == [1, 1, 3]
    got = called("backward_filter", FEW, Array(spaced(x, 2)), Array(spaced(dy, 2)))
    assert too_far(p, x, dy, got.values) == 0
    assert {"a", "b"} <= set(library.reordered())


def test_parts_come_before_the_librarys_workspace() -> None:
    """Bytes of both; without planes there are no parts, and FP32 has none of the library's."""
    every = [
        *offered(WHOLE, "backward_filter", "fp16", planes=True),
        *offered(WHOLE, "backward_filter", "fp32", planes=True),
    ]
    assert [p.config.workspace for p in every] == [0, USUAL, 0]
    for p in every:
        parts = 3 * 4 * 16 * 8
        assert (p.parts_size, p.workspace) == (parts, parts + p.config.workspace)
        assert set(p.shared()) == {"cublasLtMatmul", "winolab_reduce"}
        lies = View(0, (128 * 16, 0, 16, 1, 128)), View(0, (128 * 8, 0, 16, 1, 128))
        dw = View(1 << 20, (16, 0, 0, 0, 1))
        found = packed(parameters(p, *lies, dw, 1 << 16))
        assert (found["out"], found["images"], found["depth"]) == (1 << 16, 3, 128)
        assert found["apart_out"] == 16 * 8
        behind = (1 << 16) + parts if p.config.workspace else 0
        assert (found["workspace"], found["size"]) == (behind, p.config.workspace)
    odd = Problem.of((3, 4, 6, 13), (7, 1, 1, 13))
    assert {p.workspace % 256 for p in offered(odd, "backward_filter", "fp32", planes=True)} == {0}
    assert {p.parts_size for p in offered(FEW, "backward_filter", "fp32")} == {0}
    assert {p.parts_size for p in offered(MAP, "backward_filter", "fp16", planes=True)} == {0}


def test_structs_have_a_product_an_image() -> None:
    """Distances and columns, of y in both orders, written out."""
    (p, *_) = offered(BATCHES["odd"], "forward", "fp32")
    rows, lies = View(0, (637, 0, 91, 13)), View(0, (660, 0, 7, 1, 49))
    w = View(0, (13, 0, 0, 0, 1))
    y, first = View(0, (343, 0, 49, 7)), View(0, (352, 0, 7, 1, 50))

    def struct(x: View, out: View) -> list[int]:
        found = packed(parameters(p, x, w, out, 0))
        sizes = ("rows", "columns", "depth")
        names = ("pitch_a", "pitch_b", "pitch_out", "apart_a", "apart_b", "apart_out")
        return [found[n] for n in (*sizes, *names, "images", "alignment")]

    assert struct(rows, y)[:6] == [7, 147, 13, 13, 13, 7]
    assert struct(rows, y)[9:] == [1, 16]
    assert struct(lies, y) == [7, 49, 13, 13, 49, 7, 0, 660, 343, 3, 4]
    assert struct(rows, first) == [49, 7, 13, 13, 13, 50, 637, 0, 352, 3, 4]
    assert struct(lies, first) == [49, 7, 13, 49, 13, 50, 660, 0, 352, 3, 16]


def test_layouts_of_several_images_are_planes_by_both_distances() -> None:
    """Bytes that have to divide them, and what is none."""

    def planes(strides: tuple[int, ...], step: int, n: int = 2) -> bool:
        return ArrayLayout((n, 3, 4, 5), strides).planes(step, 2) is not None

    assert planes((64, 4, 1, 12), 8)
    assert not planes((64, 4, 1, 12), 16)
    assert planes((64, 4, 1, 16), 16)
    assert not planes((68, 4, 1, 16), 16)
    assert planes((68, 4, 1, 16), 16, n=1)
    assert planes((0, 4, 1, 16), 16)
    assert planes((16, 4, 1, 32), 16)
    assert not planes((-64, 4, 1, 16), 16)
    assert not planes((64, 5, 1, 16), 2)
    assert not planes((64, 4, 1, 8), 2)


def test_blocks_are_each_images_own() -> None:
    """49 columns fill no block of 64 as 1,568 do."""
    problem = Problem.of((32, 7, 7, 512), (2048, 1, 1, 512))
    rows = offered(problem, "forward", "fp32")[0]
    planes = offered(problem, "forward", "fp32", planes=True)[0]
    assert (rows.images, planes.images) == (1, 32)
    assert cost.cut(rows, (128, 128))[0] == 16 * 13
    assert cost.cut(planes, (128, 128))[0] == 16 * 32
    assert planes.predicted > rows.predicted
    assert offered(problem, "backward_filter", "fp32", planes=True)[0].images == 1
    large = Problem.of((32, 56, 56, 64), (256, 1, 1, 64))
    fit = offered(large, "backward_filter", "fp16", planes=True)[0]
    assert (fit.images, fit.each) == (32, (64, 256, 56 * 56))
    slower = replace(MODEL, device=replace(MODEL.device, launch=2 * MODEL.device.launch))
    more = cost.seconds(fit, slower) - cost.seconds(fit)
    assert more == pytest.approx(2 * MODEL.device.launch)  # products, and what adds them up


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_images_on_a_gpu_lie_at_any_distance(direction, precision) -> None:
    """Against FP64, the same bits again; what lies between images stays."""
    cp: Any = driver.cupy()
    shapes_of = (
        *BATCHES.values(),
        Problem.of((32, 7, 7, 512), (256, 1, 1, 512)), Problem.of((8, 28, 28, 96), (40, 1, 1, 96)),
        Problem.of((4, 56, 56, 64), (256, 1, 1, 64)), Problem.of((33, 3, 5, 7), (9, 1, 1, 7)),
    )  # fmt: skip
    for problem in shapes_of:
        p = offered(problem, direction, precision)[0]
        a, b = operands(problem, direction, precision)
        for lies in (spaced, partial(spaced, more=5), partial(spaced, more=16), woven):
            maps = lies(a, among=cp)
            other = cp.asarray(b) if direction in CORRELATIONS else lies(b, among=cp)
            bits = []
            for _ in range(3):
                empty = result_of(direction, problem, a.dtype)
                result = lies(empty, among=cp) if direction in CORRELATIONS else cp.asarray(empty)
                called(direction, problem, maps, other, out=result)
                bits.append(cp.asnumpy(result))
                around = result
                while around.base is not None:
                    around = around.base
                assert int(cp.isnan(around).sum()) == around.size - result.size
            assert too_far(p, a, b, bits[0]) == 0, problem
            assert all(np.array_equal(bits[0], other) for other in bits[1:])
