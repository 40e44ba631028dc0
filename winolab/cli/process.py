"""A command as a process: its streams, bars, signals, its errors in one line and its exit code."""

from __future__ import annotations

import codecs
import errno
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, NoReturn, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from winolab.arguments.words import agreeing
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
EVERY = 20.0  # seconds


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
        code = _failed(_usage(error))
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


def _usage(error: Any) -> str:
    """What typer says of wrong arguments, and which command tells what is expected."""
    said, context = error.format_message().rstrip("."), error.ctx
    said = said.replace(". Did you mean", "; did you mean")
    if context is None or said.endswith("?"):
        return said
    return f"{said}; {context.command_path} --help lists what is expected"


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


class Lines:
    """What a bar says, in lines for where there is no terminal: after EVERY seconds, and then each
    time that twice as many have passed."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.due, self.name, self.total, self.completed = EVERY, "", 0.0, 0.0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def add_task(self, description: str, total: float) -> TaskID:
        """Begin; the number is a bar's."""
        self.name, self.total = description, total
        return TaskID(0)

    def advance(self, task: TaskID, advance: float = 1) -> None:
        """So much more is done."""
        self.update(task, completed=self.completed + advance)

    def update(self, task: TaskID, completed: float) -> None:
        """So much is done; of a total that was too little, as of trials, there is no more left."""
        self.completed, self.total = completed, max(self.total, completed)
        passed = time.monotonic() - self.started
        if passed < self.due or not completed:
            return
        self.due = 2 * passed
        left = duration(passed * (self.total - completed) / completed)
        text = f"{completed:.3g} of {self.total:.3g} {self.name}, left: about {left}"
        print(f"winolab: {text}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Say no more."""
        self.due = math.inf


def duration(seconds: float) -> str:
    """A time in the unit that people say it in.

    >>> duration(40), duration(200), duration(9000)
    ('40 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def announce(name: str, count: int, seconds: float, workers: int, gpu: bool = False) -> None:
    """Say before a long sweep about how long it takes, on so many processes or on a GPU."""
    if seconds >= EVERY:
        where = "a GPU" if gpu else f"{workers} {agreeing(workers, 'process', 'processes')}"
        print(
            f"winolab: {count} {name}, about {duration(seconds)} on {where}",
            file=sys.stderr,
            flush=True,
        )


def progress(quiet: bool) -> Progress | Lines:
    """A bar with the time left, gone when done; lines where there is no terminal."""
    if not quiet and not sys.stderr.isatty():
        return Lines()
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
        disable=quiet,
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
