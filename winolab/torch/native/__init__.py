"""Calls that were made before, past Python: calls.cpp and its headers, compiled where there is a
C++ compiler.

A call of plain CUDA tensors costs the host some tens of microseconds in Python once other work has
pushed its objects out of the caches (docs/notes/065). What ``winolab.torch.plain`` keeps is told to
a module in C++, too, which finds it, launches it and differentiates it with the same bits. The
module is compiled for the PyTorch that runs, by a thread behind the first calls, which takes some
20 s, and kept with the kernels in the folder WINOLAB_CACHE. Without a compiler, or with
``WINOLAB_NATIVE=0``, calls stay with Python.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import torch

from winolab.arguments.arrays import seen
from winolab.gpu import driver
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import cache
from winolab.gpu.runtime.arrays import TORCH
from winolab.torch.asked import NUMBERS

log = logging.getLogger("winolab.torch")
NAME, THREAD = "winolab_calls", "winolab-native"
SOURCE = Path(__file__).parent / "calls.cpp"
INCLUDED = tuple(SOURCE.parent / f"{name}.h" for name in ("dispatched", "kept", "tape"))
# Hidden: as pybind11 hides its own.
OPTIONS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
LIBRARIES = ("torch_python", "torch_cpu", "c10")
MOST = 4096  # calls that wait for the module
PATIENCE = 30  # seconds without a sign of the process that compiles it
SIGN = 5  # seconds between two


class Unavailable(Exception):
    """Why there is no module."""


class Native:
    """The module, once it is there, and the calls that it is told."""

    def __init__(
        self, plain: list[int], casting: dict[tuple[int, int], int], key: str | None = None
    ) -> None:
        """``plain``: the sets of keys of tensors that only gradients and autocast look on at;
        ``casting``: those of a thread, included and excluded, and where autocast is on then, 1 on
        CPUs and 2 on GPUs; ``key``: the dispatcher's, for which the operators' kernels are the
        module's, which asks Python's for what it does not know."""
        self.plain, self.casting, self.key = plain, casting, key
        self._kernels: Any = None  # held as long as they are to be the operators'
        self._lock = threading.Lock()
        self._waiting: list[tuple[Any, ...]] | None = []  # None: there will be no module
        self._thread: threading.Thread | None = None
        self.module: Any = None
        # (direction's number, arguments, a, b, filters) -> the result, or None where it is not
        # known; filters: what ``hold`` returned for b, or None.
        self.call: Callable[..., Any] | None = None
        # (direction's number, operand, a, b, result's gradient, arguments) -> the operand's
        # gradient, for what the module does not know
        self.gradient: Callable[..., Any] = _no_gradient

    def of(self, plain: list[int], key: str | None = None) -> Native:
        """One without a module, for tensors of other sets of keys."""
        other = Native(plain, self.casting, key)
        other.gradient = self.gradient
        return other

    def keep(
        self, direction: str, operand: int, arguments: tuple[Any, ...], numbers: Any, call: Any
    ) -> None:
        """Tell the module of a call, as soon as there is one.

        ``operand``: -1 for an operator itself, 0 or 1 for that operand's gradient, 2 for one by a
        filter that a module keeps; ``numbers`` say how the arrays lie (``plain``).
        """
        call = call.settled
        if call.quick is None:
            return
        with self._lock:
            if self.module:
                self._told(direction, operand, arguments, numbers, call)
            elif self._waiting is not None and len(self._waiting) < MOST:
                self._waiting.append((direction, operand, arguments, numbers, call))

    def begin(self) -> None:
        """Load the module, compiled behind the caller's back if need be."""
        if self._thread or self._waiting is None:
            return
        with self._lock:
            if os.environ.get("WINOLAB_NATIVE") == "0":
                self._waiting = None
            elif not self._thread:
                self._thread = threading.Thread(target=self.load, name=THREAD, daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Return when what was begun is there, or cannot be had."""
        if self._thread:
            self._thread.join()

    def load(self) -> bool:
        """Load the module; whether it is there."""
        if self.module:
            return True
        try:
            if driver.replacing() is None:
                raise Unavailable("the driver is older than CUDA 12.0")
            self.use(loaded(compiled()))
        except (Unavailable, MachineError, OSError) as why:  # such as a cache nobody may write to
            log.info("calls take Python's way: %s", why)
            with self._lock:
                self._waiting = None
        return self.module is not None

    def use(self, module: Any) -> None:
        """Take calls to a module from now on."""
        self._set_up(module)
        with self._lock:
            self.module = module
            for each in self._waiting or ():
                self._told(*each)
            self._waiting = []
            self.call = module.call

    def forget(self) -> None:
        """Ask Python again of every call, as plans have changed."""
        if self.module:
            self._set_up(self.module)
        with self._lock:
            if self._waiting:
                self._waiting.clear()

    def _set_up(self, module: Any) -> None:
        """Tell a module what it takes, which makes it forget calls."""
        functions = driver.make_current, TORCH.looks()[1], self.gradient
        module.setup(self.plain, self.casting, *functions)

    def dispatch(self) -> bool:
        """Let the module's kernels be the operators' from now on; whether that is new.

        From a thread that calls an operator, not from the one that loads: PyTorch's dispatcher
        reads without a lock what this changes.
        """
        if not (self.key and self.module) or self._kernels:
            return False
        with self._lock:
            if new := self._kernels is None:
                self._kernels = self.module.dispatch(self.key)
        return new

    def withdraw(self) -> None:
        """Leave the operators to Python's kernels; PyTorch's tracers remember which there were."""
        self.key = self._kernels = None
        for direction in NUMBERS:
            getattr(torch.ops.winolab, f"conv_{direction}").default._dispatch_cache.clear()

    def hold(
        self, filters: Any, direction: str, arguments: tuple[Any, ...], a: Any, w: Any,
        dtype: torch.dtype, found: Any,
    ) -> Any:  # fmt: skip
        """What ``call`` takes beside w, from now on, of that dtype: ``found``, a tensor or a
        Transformed, stands for w where nothing is differentiated. ``filters`` are None or of w, as
        it is."""
        if self.module is None:
            return None
        number, address = getattr(found, "number", 0), getattr(found, "address", 0)
        of = NUMBERS[direction], arguments, a, w, dtype, found, number, address
        return self.module.hold(filters, *of)

    def _told(
        self, direction: str, operand: int, arguments: tuple[Any, ...], numbers: Any, call: Any
    ) -> None:
        sizes, strides = seen(*call.laid())
        self.module.keep(
            NUMBERS[direction], operand, arguments, numbers, call, sizes, strides,
            getattr(torch, call.dtype), call.workspace, call.index,
        )  # fmt: skip


def _no_gradient(*arguments: Any) -> Any:
    raise NotImplementedError("winolab.torch.operators says it")


def loaded(path: Path) -> Any:
    """The compiled module."""
    loader = ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    assert spec
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise Unavailable(str(error)) from error
    loader.exec_module(module)
    return module


def compiled() -> Path:
    """The module's file in the cache, compiled by one process for all. Raises Unavailable, and
    MachineError where the cache cannot be used."""
    command = _command()
    text = [path.read_text() for path in (SOURCE, *INCLUDED)]
    key = cache.digest("\n".join((*command, torch.__version__, *text)).encode())
    if path := cache.stored(key):
        return path
    claim = cache.users_folder() / f"{key}.compiling"
    claim.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    while not _claimed(claim):
        time.sleep(0.5)
        gone = not claim.exists()
        if path := cache.stored(key):
            return path
        if gone:
            raise Unavailable("another process did not compile it")
    try:
        log.info("compiling %s for PyTorch %s", SOURCE.name, torch.__version__)
        return cache.store(key, _built(command, claim), ".so")
    finally:
        claim.unlink(missing_ok=True)


def _command() -> list[str]:
    """The compiler's command but for the output. Raises Unavailable without one, or headers."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        raise Unavailable("there is no C++ compiler: install one, or name it by CXX")
    root, python = Path(torch.__file__).parent, sysconfig.get_path("include")
    if not (Path(python) / "Python.h").exists():
        raise Unavailable(f"there is no Python.h in {python}: install Python's headers")
    folders = (root / "include", root / "include/torch/csrc/api/include", python)
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        *shlex.split(compiler), *OPTIONS, f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        *(f"-I{folder}" for folder in folders), str(SOURCE), f"-L{root / 'lib'}",
        *(f"-l{name}" for name in LIBRARIES),
    ]  # fmt: skip


def _built(command: list[str], claim: Path) -> bytes:
    """The compiler's output; the claim is renewed meanwhile. Raises Unavailable with what it
    says."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / f"{NAME}.so"
        try:
            process = subprocess.Popen(
                [*command, "-o", str(output)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise Unavailable(f"{command[0]} cannot be run ({error.strerror})") from error
        atexit.register(process.kill)
        said = _said(process, claim)
        atexit.unregister(process.kill)
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines()
            raise Unavailable(f"{command[0]} fails: {next(iter(lines), process.returncode)}")
        return output.read_bytes()


def _said(process: subprocess.Popen[bytes], claim: Path) -> bytes:
    """What the compiler says when it is done."""
    while True:
        try:
            return process.communicate(timeout=SIGN)[1]
        except subprocess.TimeoutExpired:
            claim.touch()


def _claimed(claim: Path) -> bool:
    """Whether this process is the one that compiles; a claim holds for PATIENCE after its last
    sign."""
    for _ in range(2):
        try:
            claim.touch(exist_ok=False)
            return True
        except FileExistsError:
            try:
                if time.time() - claim.stat().st_mtime < PATIENCE:
                    return False
            except FileNotFoundError:
                continue
            claim.unlink(missing_ok=True)
    return False
