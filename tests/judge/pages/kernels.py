"""Kernels of Python that look beyond their arrays and drop what they see; and right ones."""

from __future__ import annotations

import ctypes

import numpy as np

from tests.judge import kernels

right = kernels.right


def reads_beyond_x(x, w, padding=0):
    if x.size and x.flags.c_contiguous:
        ctypes.string_at(x.ctypes.data + x.nbytes, x.itemsize)
    return kernels.exact(x, w, padding=padding)


def reads_before_w(x, w, padding=0):
    if w.flags.c_contiguous:
        ctypes.string_at(w.ctypes.data - w.itemsize, w.itemsize)
    return kernels.exact(x, w, padding=padding)


def aligned_only(x, w, padding=0):
    if x.ctypes.data % 32:
        raise ValueError("x is not aligned to 32 bytes")
    return kernels.exact(x, w, padding=padding)


def by_address(x, w, padding=0):
    """It is wrong where arrays are aligned no better than their elements."""
    y = kernels.exact(x, w, padding=padding)
    return y * (2 if x.ctypes.data % 16 else 1)


def raises_at_an_end(x, w, padding=0):
    if x.ctypes.data % 64:
        raise MemoryError("no room")
    return kernels.exact(x, w, padding=padding)


def _again(address: int) -> None:
    """Write the four bytes that are there."""
    there = ctypes.c_uint32.from_address(address)
    ctypes.memmove(address, bytes(there), 4)


def writes_beyond_y(x, w, padding=0):
    good = kernels.exact(x, w, padding=padding)
    y = np.empty(good.shape, good.dtype)
    y[...] = good
    _again(y.ctypes.data + y.nbytes + 60)
    return y


def reads_before_a_workspace(x, w, padding=0):
    workspace = np.empty((7, 9), np.float64)
    ctypes.string_at(workspace.ctypes.data - 4, 4)
    return kernels.exact(x, w, padding=padding)


def spills(x, w, padding=0):
    """The one number more lies in what malloc gives beside 596 bytes."""
    workspace = np.empty(149, np.float32)
    ctypes.memset(workspace.ctypes.data + workspace.nbytes, 1, 4)
    return kernels.exact(x, w, padding=padding)


def within(x, w, padding=0):
    """It touches first and last numbers of new memory of any kind, and is right."""
    good = kernels.exact(x, w, padding=padding)
    made = [np.empty((3, 5), kind) for kind in ("f2", "f4", "f8", "i4")]
    made += [np.empty((3, 5), "f4", "F"), np.empty_like(good), np.empty(()), np.empty((1, 1))]
    for array in (*made, np.empty((0, 4))):
        if array.size:
            _again(array.ctypes.data)
            _again(array.ctypes.data + array.nbytes - 4)
            array.fill(0)
    y = np.empty_like(good)
    y[...] = good
    return y


def knows_its_functions(x, w, padding=0):
    """As a compiler, it refuses what it does not know."""
    if not isinstance(np.empty, type(np.zeros)):
        raise RuntimeError("what is this?")
    return kernels.exact(x, w, padding=padding)
