"""Work that is spread over processes: of this machine, or of many by Dask.

``spread`` yields results as they come, to one writer. Dask runs again what a lost worker had; its
local cluster serves as well as a scheduler's address. It comes with the extra ``dask``.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from typing import Annotated, Any

import typer

from winolab.cli.environment import provenance
from winolab.gpu.machine import install

# Processes take the cores; the threads of a BLAS under them would only wait for each other.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PR_SET_PDEATHSIG = 1
Dask = Annotated[  # an option of the commands that sweep
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help='A scheduler of Dask, or "local", whose workers run it; needs the extra "dask".',
    ),
]
LOCAL = "local"
ADDRESS = re.compile(r"(\w+://)?\S+:\d+")
STARTING = 120  # seconds for processes of this machine, which may be busy
PATIENCE = 10  # seconds for a scheduler, and for its first worker, to answer
SAME = ("winolab", "commit")  # what workers elsewhere have to have of what a row says


def pool(workers: int) -> ProcessPoolExecutor:
    """So many processes, which end when this one ends, however it does: killed, too.

    An interrupt at the keyboard is this process's to handle.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=spawn, initializer=_serve_parent)


def spread(
    function: Callable[[Any], Any], items: Sequence[Any], workers: int, dask: str | None = None
) -> Iterator[tuple[int, Any]]:
    """(i, function(items[i])) in the order in which ``workers`` processes finish them.

    ``dask``: "local" for a cluster of so many processes, or the address of a scheduler, whose
    workers they are then. An exception, an interrupt or a termination ends all of them at once.

    Raises ValueError where Dask is not installed, does not answer, or has workers of another
    version, or where an item ends every worker that it is given to.
    """
    if items:
        with _workers_end_first():
            yield from (_by_dask if dask else _by_pool)(function, items, workers, dask or "")


def _by_pool(
    function: Callable[[Any], Any], items: Sequence[Any], workers: int, where: str
) -> Iterator[tuple[int, Any]]:
    with pool(workers) as processes:
        try:
            with _undisturbed():
                futures = {processes.submit(function, item): i for i, item in enumerate(items)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """An interrupt or a termination waits until processes have begun: they would not be known."""
    if current_thread() is not main_thread():
        yield
        return
    held: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda got, frame: held.append(got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    for number in held:
        signal.raise_signal(number)


@contextmanager
def _workers_end_first() -> Iterator[None]:
    """A termination kills the workers before this process.

    One that is still starting would print a traceback: nobody sends it the rest of its work.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: object) -> None:
        for child in multiprocessing.active_children():
            child.kill()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _by_dask(
    function: Callable[[Any], Any], items: Sequence[Any], workers: int, where: str
) -> Iterator[tuple[int, Any]]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise ValueError(f"Dask is not installed: {install('dask')}") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a lost worker is no news
    with _cluster(distributed, workers, where) as client:
        made: list[Any] = []
        numbers: dict[str, int] = {}
        try:
            _check_workers(client, where)
            with _undisturbed():
                made = client.map(function, items, pure=False)
                numbers = {future.key: i for i, future in enumerate(made)}
            for future, result in distributed.as_completed(made, client.loop, with_results=True):
                yield numbers[future.key], result
                future.release()
        except distributed.KilledWorker as error:
            lost = items[numbers[error.task]] if error.task in numbers else error.task
            raise ValueError(
                f"every worker that was given {lost} ended, as for want of memory; ask for smaller "
                "sizes, or for fewer workers"
            ) from None
        except BaseException:
            if where != LOCAL:  # a local cluster ends
                client.cancel(made, force=True)
            raise


@contextmanager
def _cluster(distributed: Any, workers: int, where: str) -> Iterator[Any]:
    """A client of the scheduler, and of a local cluster that ends with it."""
    if where != LOCAL:
        try:
            if not ADDRESS.fullmatch(where):
                raise ValueError("no address")
            client = distributed.Client(where, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise ValueError(
                f'no scheduler of Dask answers at {where!r} ({reason}); expected "local", or '
                "the address that `dask scheduler` prints, such as tcp://10.0.0.1:8786"
            ) from None
        with client:
            yield client
        return
    with _undisturbed():
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )  # fmt: skip
    try:
        with distributed.Client(cluster, set_as_default=False) as client:
            client.register_plugin(_plugin(distributed))
            yield client
    finally:
        with _undisturbed():
            cluster.close(timeout=PATIENCE)


def _check_workers(client: Any, where: str) -> None:
    """Raise ValueError where there are none, or none that compute as this process does."""
    try:
        client.wait_for_workers(1, timeout=STARTING if where == LOCAL else PATIENCE)
    except (TimeoutError, OSError):
        raise ValueError(
            f"the scheduler of Dask at {where!r} has no workers; start some: dask worker {where}"
        ) from None
    if where == LOCAL:
        return
    here = {name: provenance()[name] for name in SAME}
    for worker, found in client.run(provenance, on_error="return").items():
        if isinstance(found, Exception):
            raise ValueError(f"Dask's worker {worker} cannot import winolab: {found}")
        if any(found[name] != value for name, value in here.items()):
            raise ValueError(
                f"Dask's worker {worker} has winolab {found['winolab']} of commit "
                f"{found['commit']}; expected {here['winolab']} of commit {here['commit']}, as here"
            )


def _plugin(distributed: Any) -> Any:
    """What makes every worker leave interrupts at the keyboard to this process."""

    class Interrupts(distributed.WorkerPlugin):
        def setup(self, worker: Any) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    return Interrupts()


def _serve_parent() -> None:
    """In a worker: interrupts are the parent's to handle, and its end is the worker's.

    On Linux the kernel ends it, too, which no long call of C keeps from running.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the parent's end, by whatever signal, and end at once: nobody reads results then."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
