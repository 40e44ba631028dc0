"""Compiled kernels on disk: <hash of the source>-<hash of the cubin>.cubin, one a source; the same
way, as a .so, the module of winolab/torch/native. Plans lie in a folder in it (``plans``).

A file is loaded where its content has the hash that it is named by, and nobody but this user and
root can have written it. Where others can write to the folder, each user has one of their own in
it. ``WINOLAB_CACHE`` moves the folder. ``WINOLAB_DUMP`` names one that receives the plan of every
call that is prepared, <direction>-x-<shape>-w-<shape>-padding-<…>-<kernel>-<products>-<block
shape>.plan, and of every source the text, <hash>.cu, and what its kernels take, <hash>.txt.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path

from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache.source import Source, digest

log = logging.getLogger("winolab.gpu")


def dumped() -> str | None:
    """The folder WINOLAB_DUMP, where there is one."""
    return os.environ.get("WINOLAB_DUMP") or None


def dump(name: str, text: str) -> None:
    """Write ``text`` to a file in the folder WINOLAB_DUMP, where there is one."""
    if folder := dumped():
        write(Path(folder) / name, text.encode())


def cubin(source: str | Source, arch: str, title: str) -> Path:
    """The file of the compiled source in the cache; written whole or not at all.

    Raises MachineError, which says what to change, where NVRTC or the cache cannot be used.
    """
    if path := kept(source, arch):
        return path
    log.warning("compiling %s for %s", title, arch)
    return compiled_anew(source, arch, title)


def kept(source: str | Source, arch: str) -> Path | None:
    """The sound file of the compiled source; None where it is not in the cache, or where compiling
    is to be watched (WINOLAB_DUMP). Raises as ``cubin``."""
    return None if dumped() else stored(_key(source, arch))


def _key(source: str | Source, arch: str) -> str:
    major, minor = nvrtc.version()
    of = Source.of(source).digest
    return digest(f"{arch} {major}.{minor} {nvrtc.OPTIONS} {of}".encode())


def compiled_anew(source: str | Source, arch: str, title: str) -> Path:
    """The file in the cache, which is written whatever is there. Raises as ``cubin``."""
    text = Source.of(source).printed()
    key, compiled = _key(text, arch), nvrtc.compile_cubin(text, arch)
    path = store(key, compiled.cubin, ".cubin")
    used = "".join(f"{name} {resources}\n" for name, resources in compiled.resources.items())
    dump(f"{key[:12]}.cu", text)
    dump(f"{key[:12]}.txt", f"{title} for {arch}\n{used}")
    return path


def store(key: str, content: bytes, suffix: str) -> Path:
    """The file of that content, written whole or not at all. Raises as ``cubin``."""
    path = users_folder() / f"{key}-{digest(content)}{suffix}"
    write(path, content)
    return path


def stored(key: str) -> Path | None:
    """The sound file of that key, in the folder or in this user's own in it. Raises as ``cubin``
    where the folder cannot be entered."""
    folder = cache_folder()
    try:
        for place in dict.fromkeys((folder, users_folder())):
            names = os.listdir(place) if place.exists() and own(place) else []
            for path in (place / name for name in names if name.startswith(f"{key}-")):
                content = _content(path) if own(path) else None
                if content is not None and path.stem == f"{key}-{digest(content)}":
                    return path
    except OSError as error:  # a folder that cannot be entered
        raise MachineError(_unusable(folder / key, error)) from error
    return None


def _content(path: Path) -> bytes | None:
    """What a file holds; None where it is root's alone, or another process has just removed it."""
    try:
        return path.read_bytes()
    except (PermissionError, FileNotFoundError):
        return None


def own(path: Path) -> bool:
    """Whether only this user and root can write to a file or folder; False where it is missing."""
    if not hasattr(os, "getuid"):
        return True  # Windows keeps a user's folders from others
    try:
        found = path.stat()
    except OSError:
        return False
    others = stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (0, os.getuid()) and not others


def users_folder() -> Path:
    """Where this user's kernels are written: the cache's folder, or one in it where others can
    write. Raises MachineError where that is another user's."""
    folder = cache_folder()
    if not folder.exists() or own(folder):  # in this order: another thread may make it meanwhile
        return folder
    users = folder / f"user-{os.getuid()}"
    if users.exists() and not own(users):
        raise MachineError(
            f"compiled kernels of this user belong in {users}, which others can write to: set "
            "WINOLAB_CACHE to a folder of your own"
        )
    return users


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
    folder = users_folder()
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises MachineError that says what to change."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(0o644)  # of mkstemp's, no other user may read what root keeps for all
            Path(name).replace(path)
        except BaseException:  # an interrupt, too
            Path(name).unlink()
            raise
    except OSError as error:
        raise MachineError(_unusable(path, error)) from error


def remove(path: Path) -> None:
    """Delete a file. Raises as ``cubin``."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise MachineError(_unusable(path, error)) from error


def _unusable(path: Path, error: OSError) -> str:
    return (
        f"compiled kernels are kept in {path.parent}, which cannot be used "
        f"({error.strerror or error}): set WINOLAB_CACHE, and WINOLAB_DUMP if you use it, to "
        "folders that can be written to"
    )
