"""The handler for GPUs: on the CPU with kernels run by tests/gpu/hosted.py, and on a GPU."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import winolab
from tests.gpu import hosted
from winolab.arguments.dlpack import numpy_dtype
from winolab.arguments.tolerance import USUAL_TOLERANCE
from winolab.jax import conv_general_dilated, ffi, kernels, primitives
from winolab.jax.asked import Asked, Question

RNG = np.random.default_rng(52)
SAME: dict[str, Any] = {"window_strides": (1, 1), "padding": "SAME"}
NHWC = ("NHWC", "HWIO", "NHWC")
FFMA: dict[str, Any] = {"precision": "fp32_ffma", "dimension_numbers": NHWC}

ASKED = Asked(
    "forward",
    *((0, 1, 2, 3),) * 3,
    stride=(1, 1),
    padding=((1, 1), (1, 1)),
    dilation=(1, 1),
    groups=1,
    out_dtype="float32",
    algorithm="gamma:4:2:3",
    precision="fp32_ffma",
)


def uniform(*shape: int) -> Any:
    return jnp.asarray(RNG.uniform(-1, 1, shape), jnp.float32)


class Taken:
    """Memory that calls took of XLA: NaN between guard zones, as XLA's on the CPU has none.

    As on a GPU it is not asked to be aligned to more than 16 bytes; nor is it.
    """

    def __init__(self) -> None:
        self.memory: dict[int, tuple[int, hosted.Guarded]] = {}
        self.sizes: list[int] = []

    def take(self, size: int, alignment: int) -> int:
        if alignment not in (1, 2, 4, 8, 16):
            raise RuntimeError(f"Unsupported alignment: {alignment}")
        front = 16
        made = hosted.Guarded((front + size,), "uint8")
        address = made.array.ctypes.data + front
        self.memory[address] = size, made
        self.sizes.append(size)
        return address

    def give_back(self, address: int, size: int) -> None:
        taken, made = self.memory.pop(address)
        assert size == taken
        made.check("what a call took")


@cache
def _pretended() -> str:
    return ffi.register("winolab_conv_pretended", "cpu", kernels.run)


@pytest.fixture
def taken(library, monkeypatch) -> Any:
    """Named algorithms run the handler of GPUs on the CPU's buffers."""
    jax.clear_caches()
    kernels._prepared.cache_clear()
    made = Taken()

    def asked(call: Any, name: str, how: Any) -> Any:
        if name == "stream_get":
            how.stream = 7
        elif name == "memory_allocate":
            how.data = made.take(how.size, how.alignment)
        else:
            made.give_back(how.data, how.size)
        return how

    def copy(target: Any, source: Any) -> None:
        assert target.shape == source.shape
        views = (seen(target), seen(source))
        views[0][...] = views[1]

    monkeypatch.setattr(ffi.Call, "_asked", asked)
    monkeypatch.setattr(kernels.LIBRARY, "current", lambda: 0, raising=False)
    monkeypatch.setattr(kernels.LIBRARY, "copy", copy, raising=False)
    monkeypatch.setattr(primitives, "_host_target", _pretended)
    monkeypatch.setattr(primitives.reference, "resolved", lambda question: question)
    yield made
    jax.clear_caches()
    kernels._prepared.cache_clear()


def seen(array: Any) -> np.ndarray:
    kind = numpy_dtype(array.dtype)
    memory: Any = (ctypes.c_char * kernels._bytes(array)).from_address(array.address)
    strides = [s * kind.itemsize for s in array.strides]
    return np.ndarray(array.shape, kind, memory, strides=strides)


def test_kernels_run_on_xla_s_buffers(taken: Taken, library: Any) -> None:
    """Values, both gradients and a batch, under jit: workspaces are XLA's, and given back."""
    x, w = uniform(2, 5, 8, 12), uniform(3, 3, 12, 16)

    def found(how: dict[str, Any]) -> Any:
        def both(x: Any, w: Any) -> Any:
            y, pull = jax.vjp(lambda x, w: conv_general_dilated(x, w, **SAME, **how), x, w)
            return y, *pull(y)

        return jax.jit(both)(x, w)

    exact = found({"dimension_numbers": NHWC})  # XLA's direct sums
    for got, expected in zip(found({**FFMA, "algorithm": "gamma:4:2:3"}), exact, strict=True):
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
    assert taken.sizes
    assert not taken.memory
    assert not library.copied


def test_memory_is_aligned_within_what_xla_gives(taken: Taken) -> None:
    """All of it is the call's, to the last byte; it is given back as XLA knows it."""
    call = ffi.Call(ffi._Frame())
    for size in (1, 16, 4097):
        address = call.memory(size)
        assert address % 256 == 0
        ctypes.memset(address, 1, size)
    ctypes.memset(address + size, 1, 1)
    with pytest.raises(hosted.HostError, match="what a call took"):
        call.release()
    assert taken.sizes == [241, 256, 4337]


@pytest.mark.parametrize(
    ("said", "error", "code"),
    [
        ("Unsupported alignment: 256", RuntimeError, "INTERNAL"),
        (
            "Out of memory while trying to allocate 1000240 bytes.",
            MemoryError,
            "RESOURCE_EXHAUSTED",
        ),
    ],
)
def test_why_xla_gives_no_memory_is_said(taken: Taken, monkeypatch, said, error, code) -> None:
    def refused(size: int, alignment: int) -> int:
        raise RuntimeError(said)

    monkeypatch.setattr(taken, "take", refused)
    with pytest.raises(error, match=f"no 1000240 B of device memory: {said}") as found:
        ffi.Call(ffi._Frame()).memory(1_000_000)
    assert ("workspace_limit" in str(found.value)) == (error is MemoryError)
    x, w = uniform(1, 5, 8, 20), uniform(16, 3, 3, 20)
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"{code}.*{said}"):
        primitives.convolve(x, w, replace(ASKED, algorithm="direct")).block_until_ready()


def test_less_is_taken_where_xla_has_no_more(taken: Taken, monkeypatch, caplog: Any) -> None:
    """What is tried on the way is given back at once."""
    most, take = 260_000, taken.take

    def scarce(size: int, alignment: int) -> int:
        if sum(each for each, _ in taken.memory.values()) + size > most:
            raise RuntimeError(f"Out of memory while trying to allocate {size} bytes.")
        return take(size, alignment)

    monkeypatch.setattr(taken, "take", scarce)
    x, w = uniform(2, 8, 12, 32), uniform(32, 5, 5, 32)
    exact = conv_general_dilated(x, w.transpose(1, 2, 3, 0), **SAME, dimension_numbers=NHWC)
    many = {"algorithm": None, "tolerance": "direct:1000"}
    asked = replace(ASKED, padding=((2, 2), (2, 2)), **many)
    for _ in range(2):
        assert np.abs(primitives.convolve(x, w, asked) - exact).max() <= 1e-4
    assert len([r for r in caplog.records if "from now on, by" in r.getMessage()]) == 1
    assert taken.sizes == [245_760 + 240] * 3  # one that was tried
    assert not taken.memory


def test_arrays_in_other_orders_are_copied_by_kernels(taken: Taken, library: Any) -> None:
    """Channels first both ways, and a result in the order that lax gives it."""
    x, w = uniform(2, 12, 5, 8), uniform(16, 12, 3, 3)
    how: dict[str, Any] = {"precision": "fp32_ffma", "algorithm": "gamma:4:2:3"}
    y = conv_general_dilated(x, w, **SAME, **how)
    expected = winolab.conv_forward(
        np.asarray(x), np.asarray(w), padding=1, layout="channels_first", precision="fp64"
    )
    assert np.abs(y - expected).max() <= 1e-5
    assert library.reordered() == ["a", "out"]  # filters lie anywhere
    assert not taken.memory


def test_results_of_another_type_are_converted(taken: Taken) -> None:
    """Narrower ones, which lax refuses to give, as a gradient's type may be."""
    x, w = uniform(1, 5, 8, 12), uniform(16, 3, 3, 12)
    y, half = (
        primitives.convolve(x, w, replace(ASKED, out_dtype=dtype))
        for dtype in ("float32", "float16")
    )
    np.testing.assert_array_equal(half, y.astype(jnp.float16))
    assert not taken.memory


def test_what_no_kernel_does_is_said_as_it_is_compiled(taken: Taken) -> None:
    """By kernels.check, which the lowering for GPUs asks; and by the call, where it were not."""
    shapes = ((1, 5, 8, 12), (16, 3, 3, 12), (1, 5, 8, 16))
    wide = replace(ASKED, out_dtype="float64", precision=None)
    with pytest.raises(TypeError, match="float64"):
        kernels.check(Question(wide, shapes, "float64"))
    tile = replace(ASKED, algorithm="winograd:4x4:3x3")
    with pytest.raises(ValueError, match="only Tensor Cores"):
        kernels.check(Question(tile, shapes, "float32"))
    x, w = uniform(1, 5, 8, 12), uniform(16, 3, 3, 12)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: only Tensor Cores"):
        primitives.convolve(x, w, tile).block_until_ready()


def test_nothing_said_means_four_times_direct_s_error() -> None:
    plain = replace(ASKED, algorithm=None)
    assert str(kernels.options_of(plain).tolerance) == "direct:4"
    assert kernels.options_of(ASKED).tolerance is None
    assert str(kernels.options_of(replace(plain, tolerance="1e-5")).tolerance) == "1e-05"


def test_jax_leaves_memory_to_other_processes() -> None:
    """By what tests/gpu/conftest.py sets."""
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


@pytest.mark.gpu
def test_jax_takes_memory_as_it_needs_it() -> None:
    jnp.ones(4).block_until_ready()
    found = jax.devices()[0].memory_stats()
    assert found.get("pool_bytes", 0) < found["bytes_limit"] / 2


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dimensions", [NHWC, ("NCHW", "OIHW", "NCHW")])
def test_on_a_gpu_values_and_gradients_are_lax_s_within_the_tolerance(dtype, dimensions) -> None:
    """Ours may err by USUAL_TOLERANCE times what direct products may, lax's as much as the tile of
    cuDNN's algorithms that errs most: their difference by both. Ours alone is held to FP64."""
    assert jax.default_backend() == "gpu"
    shapes = [(2, 33, 20, 64), (3, 3, 64, 96), (2, 33, 20, 96)]
    order = [(0, 1, 2, 3)] * 3
    if dimensions != NHWC:
        order = [(0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)]
    x, w, dy = (
        jnp.asarray(RNG.uniform(-1, 1, s), dtype).transpose(o)
        for s, o in zip(shapes, order, strict=True)
    )
    how: dict[str, Any] = {**SAME, "dimension_numbers": dimensions}

    def of(conv: Any) -> list[np.ndarray]:
        y, pull = jax.vjp(conv, x, w)
        found = zip((y, *pull(dy)), (order[2], *order[:2]), strict=True)
        return [np.asarray(v, float).transpose(np.argsort(o)) for v, o in found]

    ours = of(lambda x, w: conv_general_dilated(x, w, **how))
    highest = lax.Precision.HIGHEST  # no TF32
    theirs = of(lambda x, w: lax.conv_general_dilated(x, w, **how, precision=highest))
    kind = np.asarray(x).dtype
    a, b, c = (np.asarray(v).transpose(np.argsort(o)) for v, o in
               zip((x, w, dy), order, strict=True))  # fmt: skip
    b = b.transpose(3, 0, 1, 2)
    name = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[dtype]
    for direction, operands, got, other in zip(
        ("forward", "backward_data", "backward_filter"), ((a, b), (c, b), (a, c)), ours, theirs,
        strict=True,
    ):  # fmt: skip
        asked: dict[str, Any] = {"direction": direction, "padding": 1, "precision": name,
                                 "data": operands, "out_dtype": kind}  # fmt: skip
        direct, tile = (winolab.tolerance(a.shape, b.shape, algorithm=named, **asked)
                        for named in ("direct", "cudnn:winograd_nonfused"))  # fmt: skip
        if direction == "backward_filter":
            got, other = (v.transpose(3, 0, 1, 2) for v in (got, other))
        times = USUAL_TOLERANCE.most
        absolute = times * direct.predicted.atol + max(direct.predicted.atol, tile.predicted.atol)
        relative = times * direct.predicted.rtol + max(direct.predicted.rtol, tile.predicted.rtol)
        assert np.all(np.abs(got - other) <= absolute + relative * np.abs(other)), direction
        assert direct.check(got).relative_rms <= times * direct.most, direction
