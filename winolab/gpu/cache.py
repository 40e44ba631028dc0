"""Compiled kernels on disk, one file a source.

``WINOLAB_CACHE`` moves their folder. ``WINOLAB_DUMP`` names one that receives the plan of every
call that is prepared, <direction>-x-<shape>-w-<shape>-padding-<…>-<kernel>-<products>-<block
shape>.plan, and of every source the text, <hash>.cu, and what its kernels take, <hash>.txt.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path

from winolab.gpu import nvrtc
from winolab.gpu.machine import MachineError

log = logging.getLogger("winolab.gpu")


def dump(name: str, text: str) -> None:
    """Write ``text`` to a file in the folder WINOLAB_DUMP, where there is one."""
    folder = os.environ.get("WINOLAB_DUMP")
    if folder:
        _write(Path(folder) / name, text.encode())


def cubin(source: str, arch: str, title: str) -> Path:
    """The file of the compiled source in the cache; written whole or not at all.

    Raises MachineError, which says what to change, where NVRTC or the cache cannot be used.
    """
    major, minor = nvrtc.version()
    key = hashlib.sha256(f"{arch} {major}.{minor} {nvrtc.OPTIONS}\n{source}".encode()).hexdigest()
    path = cache_folder() / f"{key[:32]}.cubin"
    try:
        kept = path.exists()
    except OSError as error:  # a folder that cannot be entered
        raise MachineError(_unusable(path, error)) from error
    if kept and not os.environ.get("WINOLAB_DUMP"):
        return path
    log.warning("compiling %s for %s", title, arch)
    compiled = nvrtc.compile_cubin(source, arch)
    _write(path, compiled.cubin)
    used = "".join(f"{name} {resources}\n" for name, resources in compiled.resources.items())
    dump(f"{key[:12]}.cu", source)
    dump(f"{key[:12]}.txt", f"{title} for {arch}\n{used}")
    return path


def cache_folder() -> Path:
    """Where compiled kernels are kept. Raises MachineError where no variable says it, and no home
    does."""
    if named := os.environ.get("WINOLAB_CACHE"):
        return Path(named)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winolab"
    except RuntimeError as error:
        raise MachineError(
            "there is no home directory to keep compiled kernels in: set WINOLAB_CACHE to a folder"
        ) from error


def writable() -> bool:
    """Whether kernels can be kept; of a folder that is yet to be made, whether it can be.

    It is tried, by a file without a name: as root everything seems to be permitted, in /proc too.
    """
    folder = cache_folder()
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises MachineError that says what to change."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:  # an interrupt, too
            Path(name).unlink()
            raise
    except OSError as error:
        raise MachineError(_unusable(path, error)) from error


def remove(path: Path) -> None:
    """Delete a file. Raises as ``cubin``."""
    try:
        path.unlink()
    except OSError as error:
        raise MachineError(_unusable(path, error)) from error


def _unusable(path: Path, error: OSError) -> str:
    return (
        f"compiled kernels are kept in {path.parent}, which cannot be used "
        f"({error.strerror or error}): set WINOLAB_CACHE, and WINOLAB_DUMP if you use it, to "
        "folders that can be written to"
    )
