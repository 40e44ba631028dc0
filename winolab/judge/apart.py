"""A judgement in a process of its own: a kernel that ends it, or never ends, is refused."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from threading import Lock, Thread
from typing import Any

from winolab.gpu.machine import MachineError
from winolab.judge import speed
from winolab.judge.candidate import Declined
from winolab.judge.claim import Claim
from winolab.judge.judgement import Fault, Judgement, judge
from winolab.judge.loading import load
from winolab.judge.pages.protected import Protected
from winolab.judge.trial import Case, Finding
from winolab.problem import Problem

LIMIT = 120.0  # seconds of a call
LOADING = 90.0  # seconds in which a process begins its first trial
FORBIDDEN = ("SIGSEGV", "SIGBUS")  # what ends a process that touches a page it may not

Told = Callable[[int], None]
Layers = list[tuple[str, Problem]]


def judge_apart(
    kernel: str,
    claim: Claim,
    loaded: dict[str, Any],
    how: dict[str, Any],
    *,
    layers: Layers | None = None,
    limit: float = LIMIT,
    told: Told = lambda number: None,
) -> tuple[Judgement, list[str]]:
    """The judgement of the kernel of that name, with times of layers by name if it is accepted, and
    why layers have none.

    ``loaded`` are arguments of ``load``, ``how`` those of ``judge``; a call may take ``limit``
    seconds; ``told`` hears the number of each. What the kernel prints goes to standard error.
    Raises ValueError for what does not load.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    arguments = (theirs, kernel, claim, loaded, how, layers or [])
    child = spawn.Process(target=_alone, args=arguments)
    child.start()
    theirs.close()
    found: Judgement | None = None
    case: Case | None = None
    ending = ""  # what the kernel does if the process ends now
    try:
        while True:
            if case is not None and not ours.poll(limit):
                child.kill()
                finding = Finding("hang", f"a call took longer than {limit:g} s")
                break
            if found is None and not ours.poll(LOADING):
                raise ValueError(f"{kernel}: loading took longer than {LOADING:g} s")
            kind, *values = ours.recv()
            if kind == "call":
                continue
            if kind == "ending":
                ending = values[0]
                continue
            if kind == "error":
                raise values[0]
            if kind == "done":
                return values[0], values[1]
            number, case, found = values
            told(number)
    except EOFError:
        child.join()
        finding = _finding(child.exitcode or 0, ending)
    finally:
        _end(child)
        ours.close()
    if found is None or case is None:
        where = "trials" if found else "it was loaded"
        raise ValueError(f"{kernel}: the process ended after {where}: {finding.said}")
    found.faults.append(Fault(finding, case, case))
    return found, []


def _end(child: Any) -> None:
    """End a process, and those that it forked."""
    with suppress(AttributeError, ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # it leads a group, once it has begun
    child.kill()
    child.join()


def _finding(code: int, ending: str) -> Finding:
    """What is wrong with a kernel whose process ended."""
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    if ending.startswith(Protected.own) and end in FORBIDDEN:
        return Finding("inputs", f"the kernel {ending}, if only for a while: {end}")
    if ending and end in FORBIDDEN:
        return Finding("pages", f"the kernel {ending}, where it may not: {end}")
    perhaps = f", perhaps as it {ending}" if ending else ""
    return Finding("crash", f"it ended the process ({end}){perhaps}")


def _alone(*given: Any) -> None:
    """``_run``, as the leader of its own processes."""
    with suppress(AttributeError, OSError):
        os.setsid()
    if parent := multiprocessing.parent_process():
        Thread(target=_end_after, args=(parent,), daemon=True).start()
    _run(*given)


def _end_after(parent: Any) -> None:
    """End this process, and those that it forked, where its parent ends first: by a signal, say."""
    parent.join()
    with suppress(AttributeError, ProcessLookupError, PermissionError):
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _run(
    pipe: Connection, kernel: str, claim: Claim, loaded: dict, how: dict, layers: Layers
) -> None:
    with suppress(OSError, ValueError):
        os.dup2(2, 1)  # standard output is the report's
    lock = Lock()

    def send(*message: Any) -> None:
        with lock:  # threads call, too
            pipe.send(message)

    try:
        candidate = load(kernel, **loaded)
        called = candidate.called

        def told(*given: Any) -> Any:
            send("call")
            return called(*given)

        candidate = replace(candidate, called=told)
        told_trial, told_end = partial(send, "trial"), partial(send, "ending")
        found = judge(candidate, claim, told=told_trial, ending=told_end, **how)
        send("trial", len(found.rows), None, found)
        untimed = []
        for name, problem in layers if found else []:
            try:
                found.times += speed.timed(replace(candidate, called=called), claim, problem, name)
            except Declined as error:
                untimed.append(f"{name}: {error}")
        send("done", found, untimed)
    except Exception as error:
        send("error", _plain(error))


def _plain(error: Exception) -> Exception:
    """An error that another process can read."""
    for kind in (ValueError, TypeError, MemoryError, OSError, MachineError, RuntimeError):
        if isinstance(error, kind):
            return kind(*map(str, error.args)) if kind is not OSError else error
    return RuntimeError(f"{type(error).__name__}: {error}")
