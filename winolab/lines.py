"""JSON Lines files that only grow: one process has a file at a time, whole lines reach the disk."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Bytes of a line that are read at once: a file of something else may have no line ends.
LONGEST = 1 << 20
TAKEN = (errno.EAGAIN, errno.EACCES)  # what a lock that another process has raises
UNKNOWN = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems without


class Taken(ValueError):
    """Another process has the file."""


class Lines:
    """A JSON Lines file that this process has until it closes it.

    Raises ValueError where the path is no regular file (a device, a pipe), Taken where another
    process has the file, OSError with the path where it cannot be opened for writing.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with suppress(FileNotFoundError):
            kind = self.path.stat().st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise ValueError(
                    f"{self.path} is a device or a pipe; expected a file to add lines to"
                )
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise named(error, self.path) from error
        try:
            _lock(self._file.fileno())
        except OSError as error:
            self.close()
            if error.errno not in TAKEN:
                raise named(error, self.path) from error
            raise Taken(
                f"another process is adding rows to {self.path}: wait until it ends"
            ) from None

    def read(self) -> Iterator[tuple[int, bytes]]:
        """The lines with their numbers from 1; those longer than LONGEST come in pieces."""
        try:
            with self.path.open("rb") as file:
                yield from enumerate(iter(lambda: file.readline(LONGEST), b""), 1)
        except OSError as error:
            raise named(error, self.path) from error

    def checked(self) -> Lines:
        """The file, for rows of any fields. Raises ValueError where its first line is neither an
        object of JSON nor the beginning of one."""
        first = next((line for _, line in self.read() if line.strip()), b"{}")
        try:
            right = isinstance(json.loads(first), dict)
        except (ValueError, RecursionError):
            right = first.startswith(b'{"') and not first.endswith(b"\n")
        if not right:
            self.close()
            raise ValueError(f"{self.path} holds no rows, and is left as it is")
        return self

    def append(self, row: dict[str, Any]) -> None:
        """Write a row, on the disk when this returns; where it raises, the file is as before.

        The row starts a line of its own, also behind a line that an interrupted write left.
        """
        end = os.fstat(self._file.fileno()).st_size
        rest = json.dumps(row, allow_nan=False).encode() + b"\n"
        try:
            if end and self._last(end) != b"\n":
                rest = b"\n" + rest
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except BaseException as error:
            with suppress(OSError):
                self._file.truncate(end)
            raise named(error, self.path) if isinstance(error, OSError) else error from None

    def close(self) -> None:
        """Close the file; what was appended is there already."""
        self._file.close()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last(self, end: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(end - 1)
            return file.read(1)


def add(path: Path | str, rows: Iterable[dict[str, Any]], patience: float = 60.0) -> None:
    """Append rows to a file that several processes add to, each for a moment: wait for it so many
    seconds. Raises as ``Lines.checked`` and ``Lines.append``."""
    end = time.monotonic() + patience
    while True:
        try:
            with Lines(path).checked() as file:
                for row in rows:
                    file.append(row)
            return
        except Taken:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def rewrite(path: Path | str, rows: Iterable[dict[str, Any]]) -> None:
    """Put rows in place of what a file has: all of them, or none where this is interrupted."""
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    part.replace(path)


def named(error: OSError, path: Path | str) -> OSError:
    """The error with the file's name, which writing does not know."""
    return OSError(error.errno, error.strerror, str(path))


def _lock(handle: int) -> None:
    """Take the file's lock, which ends with the process. Raises OSError where another has it."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, 1 << 62, os.SEEK_SET)  # a byte that nobody reads
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in UNKNOWN:
            raise
