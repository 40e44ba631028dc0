"""A command as a process: its streams, bars, signals, its errors in one line and its exit code."""

from __future__ import annotations

import codecs
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import NoReturn, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from winolab.gpu.machine import MachineError

# typer's usage errors: the same class whether typer carries click or depends on it
USAGE_ERROR = cast(type[Exception], typer.BadParameter.__mro__[1])
USAGE, INTERRUPTED = 2, 128 + signal.SIGINT  # exit codes
# What writing to a stream raises, without a name, where nothing more goes in.
STREAM_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
# What this field writes beyond Latin letters, for streams whose encoding does not have it.
SPELLED = {
    "Γ": "Gamma", "Ω": "Omega", "Σ": "Sum", "Φ": "Phi", "α": "alpha", "γ": "gamma", "ε": "eps",
    "µ": "u", "μ": "u", "×": "x", "⊙": "*", "·": "*", "−": "-", "–": "-", "√": "sqrt", "∞": "inf",
    "≤": "<=", "≥": ">=", "≈": "~", "→": "->", "⋆": "*", "²": "^2", "³": "^3", "…": "...",
    "ᵀ": "T", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")",
}  # fmt: skip
WIDE = 10_000  # columns: more than any table has
PIPE = 200  # columns where there is no terminal


def run(app: Callable[..., object]) -> NoReturn:
    """Run a typer app and exit; what a user, the machine or a file did wrong is one line, code 2.

    Other RuntimeErrors are faults of ours, and keep their traceback.
    """
    code: object = 0
    try:
        prepare()
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read our output, such as head, has enough
        _drop()
        code = 1  # as typer ends where it meets this first
    except USAGE_ERROR as error:
        code = _failed(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
    except OSError as error:
        where = error.filename
        if where is None and error.errno in STREAM_ERRORS:
            where = "standard output"
            _drop()
        code = _failed(f"{where}: {error.strerror}" if where else str(error))
    except MemoryError:
        code = _failed(
            "there is not enough memory for this: ask for smaller sizes, or for fewer workers"
        )
    except (ValueError, TypeError, MachineError) as error:
        code = _failed(str(error))
    sys.exit(cast(int, code))


def console(wide: bool = False) -> Console:
    """Where tables are printed: as wide as the terminal, or as they want to be."""
    if wide:
        return Console(width=WIDE, soft_wrap=True)
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE)


def prepare() -> None:
    """Make the streams what printing expects, whatever the process was started with.

    Characters that an encoding lacks are spelled. Nothing is read from a closed standard input and
    what goes to a closed standard error is lost; raises ValueError for a closed standard output.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    if closed:
        _hold_descriptors()
    for name in closed:
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    codecs.register_error("winolab.spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="winolab.spelled")
    if "stdout" in closed:
        raise ValueError(
            "standard output is closed; expected a terminal, a file or a pipe (/dev/null to see "
            "nothing)"
        )


def _failed(message: str) -> int:
    print(f"winolab: {' '.join(message.split())}", file=sys.stderr)
    return USAGE


def _drop() -> None:
    """Print no more to standard output, which nobody reads or which is full."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _hold_descriptors() -> None:
    """Open 0, 1 and 2 where they are closed, lest a file that is opened later becomes one."""
    while True:
        held = os.open(os.devnull, os.O_RDWR)
        if held > 2:
            os.close(held)
            return
        os.set_inheritable(held, True)


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    parts = []
    for at in range(error.start, error.end):
        text = SPELLED.get(error.object[at])
        if text is None:
            one = UnicodeEncodeError(error.encoding, error.object, at, at + 1, error.reason)
            text = str(codecs.backslashreplace_errors(one)[0])
        parts.append(text)
    return "".join(parts), error.end


def progress(quiet: bool) -> Progress:
    """A bar with the time left, on a terminal only, gone when done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.3g} of {task.total:.3g}, left:"),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )


@contextmanager
def clock(name: str, seconds: float, quiet: bool) -> Iterator[None]:
    """A bar that runs with the time, for work that takes a stated number of seconds."""
    done = Event()
    with progress(quiet) as bar:
        task = bar.add_task(name, total=seconds)
        started = time.monotonic()

        def run() -> None:
            while not done.wait(0.2):
                bar.update(task, completed=min(seconds, time.monotonic() - started))

        ticking = Thread(target=run)
        ticking.start()
        try:
            yield
        finally:
            done.set()
            ticking.join()
