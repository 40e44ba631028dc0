"""Python functions as handlers of XLA's foreign function interface (FFI), by ctypes.

The structs are those of xla/ffi/api/c_api.h, which jaxlib ships; its versions add fields behind
those that are read here. So nothing is compiled, on no platform: docs/notes/051.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax

Pointer = ctypes.c_void_p
Size = ctypes.c_size_t


class _Base(ctypes.Structure):
    """What every struct begins with."""

    _fields_ = (("struct_size", Size), ("extension", Pointer))


class _Buffer(_Base):
    _fields_ = (("dtype", ctypes.c_int), ("data", Pointer))


class _Values(_Base):
    """Arguments or results."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("kinds", Pointer),
        ("values", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )


class _Text(ctypes.Structure):
    _fields_ = (("address", Pointer), ("size", Size))


class _Attributes(_Base):
    _fields_ = (
        ("count", ctypes.c_int64),
        ("kinds", Pointer),
        ("names", Pointer),
        ("values", ctypes.POINTER(ctypes.POINTER(_Text))),
    )


class _Version(_Base):
    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int))


class _Api(_Base):
    """The runtime's functions: all take a struct, and return an error or nothing."""

    _fields_ = (
        ("version", _Version),
        ("internal", Pointer),
        *((name, Pointer) for name in ("error_create", "error_message", "error_destroy")),
        *((name, Pointer) for name in ("register", "stream_get", "type_register", "context_get")),
        *((name, Pointer) for name in ("state_set", "state_get")),
        *((name, Pointer) for name in ("memory_allocate", "memory_free")),
    )


class _Frame(_Base):
    """XLA_FFI_CallFrame."""

    _fields_ = (
        ("api", ctypes.POINTER(_Api)),
        ("context", Pointer),
        ("stage", ctypes.c_int),
        ("operands", _Values),
        ("results", _Values),
        ("attributes", _Attributes),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", Size), ("version", _Version), ("traits", ctypes.c_uint32))


class _MetadataExtension(ctypes.Structure):
    """What a frame has that asks a handler what it is."""

    _fields_ = (
        ("struct_size", Size),
        ("kind", ctypes.c_int),
        ("next", Pointer),
        ("metadata", ctypes.POINTER(_Metadata)),
    )


class _Error(_Base):
    _fields_ = (("message", ctypes.c_char_p), ("code", ctypes.c_int))


class _Told(_Base):
    _fields_ = (("error", Pointer), ("message", ctypes.c_char_p))


class _Stream(_Base):
    _fields_ = (("context", Pointer), ("stream", Pointer))


class _Allocated(_Base):
    _fields_ = (("context", Pointer), ("size", Size), ("alignment", Size), ("data", Pointer))


class _Freed(_Base):
    _fields_ = (("context", Pointer), ("size", Size), ("data", Pointer))


HANDLER = ctypes.CFUNCTYPE(Pointer, Pointer)
CAPSULE = ctypes.PYFUNCTYPE(ctypes.py_object, Pointer, ctypes.c_char_p, Pointer)
METADATA = 1  # the kind of extension
INVALID, EXHAUSTED, INTERNAL = 3, 8, 13  # codes of errors
ALIGNMENT = 256  # bytes, of the memory that kernels have
GIVEN = 16  # the most that XLA may be asked for on a GPU


class Call:
    """One call of a handler, while it runs."""

    def __init__(self, frame: _Frame) -> None:
        self._frame = frame
        self._taken: list[tuple[int, int]] = []  # sizes and addresses, as XLA gave them

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where operands lie, then results."""
        frame = self._frame
        return tuple(
            values.values[i].contents.data or 0
            for values in (frame.operands, frame.results)
            for i in range(values.count)
        )

    @property
    def text(self) -> bytes:
        """The call's only attribute."""
        attribute = self._frame.attributes.values[0].contents
        return ctypes.string_at(attribute.address, attribute.size)

    def stream(self) -> int:
        """The address of the stream, where the platform has some."""
        return self._asked("stream_get", _Stream(context=self._frame.context)).stream or 0

    def memory(self, size: int) -> int:
        """The address of so many bytes of device memory, of XLA's pool, until the call ends: who
        gets them next does so in the order of the stream. A multiple of ALIGNMENT.

        Raises MemoryError where memory does not suffice, RuntimeError where XLA gives none for
        another reason.
        """
        asked = size + ALIGNMENT - GIVEN
        how = _Allocated(context=self._frame.context, size=asked, alignment=GIVEN)
        try:
            address = self._asked("memory_allocate", how).data
        except RuntimeError as error:
            said = f"XLA gave no {asked} B of device memory: {error}"
            if re.search("memory|alloc|exhausted", str(error), re.IGNORECASE):
                said += "; free some, or give a smaller workspace_limit"
                raise MemoryError(said) from None
            raise RuntimeError(said) from None
        self._taken.append((asked, address))
        return address + -address % ALIGNMENT

    def release(self, but: int = 0) -> None:
        """Give back the memory that it took, ``but`` the first so many pieces."""
        taken, self._taken = self._taken[but:], self._taken[:but]
        for size, address in taken:
            how = _Freed(context=self._frame.context, size=size, data=address)
            self._asked("memory_free", how)

    @contextmanager
    def returned(self) -> Iterator[None]:
        """Gives back at its end what is taken within."""
        before = len(self._taken)
        yield
        self.release(but=before)

    def _asked(self, name: str, arguments: Any) -> Any:
        """The arguments, with what the runtime's function writes there. Raises RuntimeError."""
        api, arguments.struct_size = self._frame.api.contents, ctypes.sizeof(arguments)
        if error := HANDLER(getattr(api, name))(ctypes.addressof(arguments)):
            told = _Told(ctypes.sizeof(_Told), error=error)
            HANDLER(api.error_message)(ctypes.addressof(told))
            said = (told.message or b"no reason given").decode(errors="replace")
            HANDLER(api.error_destroy)(ctypes.addressof(told))
            raise RuntimeError(said.partition("\n")[0])
        return arguments


_kept: list[Any] = []  # handlers, which XLA calls as long as the process lives


def register(name: str, platform: str, handle: Callable[[Call], object]) -> str:
    """Let XLA's calls of ``name`` on ``platform`` be those of ``handle``, whose exceptions they
    raise. Returns the name."""
    major, minor = versions()

    def called(address: int) -> int | None:
        frame = _Frame.from_address(address)
        if frame.extension:
            asked = _MetadataExtension.from_address(frame.extension)
            if asked.kind == METADATA:
                version = asked.metadata.contents.version
                version.major, version.minor = major, minor
                return None
        call = Call(frame)
        try:
            try:
                handle(call)
            finally:
                call.release()
        except BaseException as error:
            return _failed(frame.api.contents, error)
        return None

    handler = HANDLER(called)
    _kept.append(handler)
    capsule = CAPSULE(("PyCapsule_New", ctypes.pythonapi))
    made = capsule(ctypes.cast(handler, Pointer), None, None)
    jax.ffi.register_ffi_target(name, made, platform=platform)
    return name


def _failed(api: _Api, error: BaseException) -> int | None:
    """The error as XLA raises it: one line."""
    code, said = INTERNAL, f"{type(error).__name__}: {error}"
    if isinstance(error, ValueError | TypeError | MemoryError):
        code = EXHAUSTED if isinstance(error, MemoryError) else INVALID
        said = str(error)
    made = _Error(ctypes.sizeof(_Error), message=" ".join(said.split()).encode(), code=code)
    return HANDLER(api.error_create)(ctypes.addressof(made))


@cache
def versions() -> tuple[int, int]:
    """The interface's version, of the headers that jaxlib has."""
    text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    major, minor = (
        int(re.search(rf"XLA_FFI_API_{name} (\d+)", text)[1])  # pyright: ignore
        for name in ("MAJOR", "MINOR")
    )
    if major:
        raise RuntimeError(
            f"jaxlib's foreign function interface has version {major}.{minor}; expected 0, of "
            "jaxlib 0.9 to 0.12: install one of these"
        )
    return major, minor
