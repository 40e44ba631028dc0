"""Processes that a kernel forks: how often it does, and whether one returns from the call, too."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

LATE = 0.1  # seconds in which a process that comes back is waited for, once


class Forks:
    """Counts of this process: ``count``, how often Python forked here (not for another program, as
    ``subprocess`` does), and whether a copy of this process came back from a call."""

    def __init__(self) -> None:
        self.count = self._waited = 0
        self._back = mmap.mmap(-1, 1)  # shared with what is forked
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_parent=self._counted)

    def _counted(self) -> None:
        self.count += 1

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Within it a forked process may work and end; one that leaves it ends here, and is told
        of, so that nothing behind it is done twice."""
        here = os.getpid()
        try:
            yield
        finally:
            if os.getpid() != here:
                self._back[0] = 1
                os._exit(0)

    def back(self) -> bool:
        """Whether one has left since this was asked last."""
        if self.count > self._waited:
            time.sleep(LATE if not self._waited else 0)
            self._waited = self.count
        found = bool(self._back[0])
        self._back[0] = 0
        return found


FORKS = Forks()
