"""The primitives on a GPU: the kernels of winolab.gpu on XLA's buffers and stream."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

from winolab.arguments.arrays import contiguous
from winolab.arguments.dlpack import numpy_dtype
from winolab.arguments.tolerance import USUAL_TOLERANCE
from winolab.gpu import driver
from winolab.gpu.runtime.arrays import CuPy, Described
from winolab.gpu.runtime.call import Call as Prepared
from winolab.gpu.runtime.call import prepare_call
from winolab.gpu.runtime.planned import PlannedCall
from winolab.gpu.runtime.resolve import resolve
from winolab.jax import ffi
from winolab.jax.asked import Asked, Ints, Question
from winolab.options import ConvOptions


class Array:
    """A buffer of XLA's as a channels-last array. Strides in elements."""

    __slots__ = ("address", "dtype", "shape", "strides")

    def __init__(self, address: int, shape: Ints, strides: Ints, dtype: str) -> None:
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, dtype

    def __setitem__(self, everything: Any, zero: int) -> None:
        """Fill the memory, which has no gaps, with zeros."""
        LIBRARY.fill(self, zero)


class Library(CuPy):
    """What kernels need of XLA's arrays; a thread has one call of a handler at a time."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def begin(self, call: ffi.Call) -> None:
        """The call on whose stream and from whose memory all is from now on."""
        self._thread.call = call

    def describe(self, array: Array) -> Described:
        aligned = array.address % 16 == 0
        return Described(array.shape, array.strides, array.dtype, self.current(), aligned)

    def address(self, array: Array) -> int:
        return array.address

    def stream(self, index: int) -> int:
        return self._thread.call.stream()

    def empty(self, shape: Ints, dtype: str, index: int) -> Array:
        made = Array(0, shape, contiguous(shape), dtype)
        made.address = self._thread.call.memory(_bytes(made))
        return made

    def memory(self, size: int, index: int) -> tuple[None, int]:
        return None, self._thread.call.memory(size)

    def fits(self, size: int, index: int) -> bool:
        call = self._thread.call
        with call.returned():
            return super().fits(size, index)

    def capturing(self, index: int) -> bool:
        return False

    def used(self, stream: int, *memory: Any) -> None:
        pass  # XLA captures no call that does not say it may be

    def copy(self, target: Array, source: Array) -> None:
        with driver.cupy().cuda.ExternalStream(self.stream(0)):
            _seen(target)[...] = _seen(source)

    def fill(self, array: Array, byte: int) -> None:
        """Write the byte all over an array without gaps."""
        if size := _bytes(array):
            runtime = driver.cupy().cuda.runtime
            runtime.memsetAsync(array.address, byte, size, self.stream(0))


LIBRARY = Library()


def run(call: ffi.Call) -> None:
    """The handler: kernels, on XLA's buffers. Raises as winolab.conv_forward on a GPU."""
    text, addresses = call.text, call.addresses
    lying = _lying(text)
    arrays = [Array(at, *how) for at, how in zip(addresses, lying, strict=True)]
    LIBRARY.begin(call)
    aligned = tuple([address % 16 == 0 for address in addresses])
    _prepared(text, LIBRARY.current(), aligned).run(*arrays)


@lru_cache(maxsize=4096)
def _lying(text: bytes) -> list[tuple[Ints, Ints, str]]:
    """Shapes, strides and dtypes of both operands and the result, channels last."""
    question = Question.of(text)
    asked, dtypes = question.asked, (question.dtype, question.dtype, question.asked.out_dtype)
    found = []
    for role, shape, dtype in zip(asked.roles, question.shapes, dtypes, strict=True):
        strides = contiguous(shape)
        orders = (tuple([v[i] for i in asked.axes(role)]) for v in (shape, strides))
        found.append((*orders, dtype))
    return found


@lru_cache(maxsize=4096)
def _prepared(text: bytes, index: int, aligned: tuple[bool, ...]) -> Prepared:
    question = Question.of(text)
    described = _described(text, index, aligned)
    options = options_of(question.asked)
    return prepare_call(question.asked.direction, question.problem, LIBRARY, options, *described)


def _described(text: bytes, index: int, aligned: tuple[bool, ...]) -> list[Described]:
    lying = zip(_lying(text), aligned, strict=True)
    return [Described(*how, index, whether) for how, whether in lying]


def options_of(asked: Asked) -> ConvOptions:
    """The options; where nothing says how, what errs at most a few times as direct products do."""
    options = asked.options()
    if options.algorithm or options.tolerance:
        return options
    return replace(options, tolerance=USUAL_TOLERANCE)


def check(question: Question) -> None:
    """Raise what a call would where nothing serves it: as the call is compiled, on no stream."""
    text = question.text().encode()
    described = _described(text, LIBRARY.current(), (True,) * 3)
    options = options_of(question.asked)
    PlannedCall.of(resolve(question.asked.direction, question.problem, options, *described))


def _bytes(array: Array) -> int:
    return math.prod(array.shape) * numpy_dtype(array.dtype).itemsize


def _seen(array: Array) -> Any:
    """The same memory as CuPy's array."""
    cuda, kind = driver.cupy().cuda, numpy_dtype(array.dtype)
    memory = cuda.UnownedMemory(array.address, _bytes(array), array)
    strides = tuple(s * kind.itemsize for s in array.strides)
    return driver.cupy().ndarray(array.shape, kind, cuda.MemoryPointer(memory, 0), strides)
