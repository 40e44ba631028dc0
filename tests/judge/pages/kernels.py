"""Kernels of Python that look beyond their arrays and drop what they see; and right ones."""

from __future__ import annotations

import ctypes

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
