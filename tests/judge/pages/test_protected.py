"""Where protected memory lies, and what may be done with it."""

from __future__ import annotations

import ctypes
import json
import mmap
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from winolab.gpu.machine import MachineError
from winolab.judge.libraries import BF16, NumPy, Torch
from winolab.judge.pages import protected
from winolab.judge.pages.protected import BESIDE, Protected

SIZES = (1, 4, 60, 4096, 4100, 3 * mmap.PAGESIZE)


@pytest.mark.parametrize("aligned", [1, 4, 16, 64])
@pytest.mark.parametrize("size", SIZES)
def test_it_ends_or_begins_with_a_page(size: int, aligned: int) -> None:
    array = np.asarray(Protected(size, "end", aligned))
    assert (array.dtype, array.shape) == (np.uint8, (size,))
    assert (array == 0xFF).all()  # and lives without its maker
    assert array.ctypes.data % aligned == 0
    left = -(array.ctypes.data + size) % mmap.PAGESIZE
    assert left == -size % aligned
    start = np.asarray(Protected(size, "start", aligned))
    assert start.ctypes.data % mmap.PAGESIZE == 0


def test_it_is_an_array_of_every_type() -> None:
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), BF16):
        memory = Protected(24 * dtype.itemsize, "end", dtype.itemsize)
        address = np.asarray(memory).ctypes.data
        for library in (NumPy(), Torch(cuda=False)):
            flat = library.over(memory, dtype)
            assert library.dtype(flat) == dtype.name
            assert np.isnan(library.get(flat).astype(float)).all()
            library.put(flat.reshape(4, 6), np.arange(24).reshape(4, 6).astype(dtype))
            assert (library.get(flat) == np.arange(24).astype(dtype)).all()
            library.put(flat, np.full(24, np.nan, dtype))
            where = flat.data_ptr() if isinstance(library, Torch) else flat.ctypes.data
            assert where == address


# Each case in a process of its own, which this one forks: what ended it, and what it said before.
TOUCH = """
import ctypes, json, os, sys
import numpy as np
from winolab.judge.pages.protected import Protected
def touch(what, at):
    return ctypes.string_at(at, 1) if what == "read" else ctypes.memset(at, 1, 1)
def child(end, kind, what, by, pipe):
    memory = Protected(100, end, 1)
    array = np.asarray(memory)
    address = array.ctypes.data + (99 + by if end == "end" else -by)
    with memory.beside(kind):
        array[[0, -1]] = array[[-1, 0]]
        touch(what, array.ctypes.data)
        os.write(pipe, b"within ")
        touch(what, address)
    os.write(pipe, b"beyond")
for case in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if not (forked := os.fork()):
        child(*case, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), said]))
"""


def test_what_ends_a_process() -> None:
    due = {
        ("reads", "read", 1): -11, ("reads", "read", BESIDE): -11, ("reads", "write", 1): -11,
        ("writes", "write", 1): -11, ("writes", "write", BESIDE): -11,
        ("writes", "read", 1): 0, ("writes", "read", BESIDE): 0,
    }  # fmt: skip
    cases = [(end, *case) for end in ("end", "start") for case in due]
    command = [sys.executable, "-c", TOUCH, json.dumps(cases)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = dict(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))
    for case in cases:
        code = due[case[1:]]
        assert found[case] == [code, "within " if code else "within beyond"], case


def test_what_is_beside_may_be_touched_again() -> None:
    memory = Protected(100, "end", 1)
    address = np.asarray(memory).ctypes.data + 100
    with memory.beside("reads"):
        pass
    ctypes.memset(address, 7, 2)
    assert ctypes.string_at(address, 2) == b"\7\7"
    with pytest.raises(KeyError), memory.beside("writes"):
        raise KeyError
    ctypes.memset(address, 8, 1)


def test_a_refusal_of_the_system_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Protected(100, "end", 1)
    memory._pages += 1  # mprotect takes whole pages
    with pytest.raises(MachineError, match=r"mprotect: Invalid argument"), memory.beside("reads"):
        pass
    with pytest.raises(MachineError, match=r"^no \d+ bytes of memory: "):
        Protected(1 << 55, "end", 1)
    monkeypatch.setattr(protected.os, "name", "nt")
    assert protected.mprotect.__wrapped__() is None


def test_bytes_are_nan_in_every_type() -> None:
    filled = np.full(4, protected.NAN, np.uint8)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        assert np.isnan(filled.view(dtype).astype(float)).all()
