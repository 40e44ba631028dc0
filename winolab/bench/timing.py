"""Times calls side by side: interleaved rounds, CUDA events, quantiles."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from winolab.gpu import driver

# Several times any L2 cache, and long enough to write (0.2 ms) to queue a call meanwhile.
FLUSH = 512 << 20  # bytes


@dataclass(frozen=True)
class Times:
    """Seconds of one call: its quartiles over the rounds, and their number."""

    low: float
    median: float
    high: float
    rounds: int


def interleave(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int | Mapping[str, int] = 11,
    repeat: int = 1,
    flush: int = 0,
    warmup: int = 2,
    warm: bool = False,
) -> dict[str, Times]:
    """Times of every call, one measurement each in turn, ``rounds`` times over; by name, some leave
    earlier. Every round begins with another call: the first one after a wait finds a rested GPU.

    A measurement is the mean of ``repeat`` calls in a row, between CUDA events on the current
    stream. What precedes it keeps the GPU busy while the host queues it: an untimed call, or, for
    times with a cold L2 cache, ``flush`` bytes written (more than the cache holds), or, with
    ``warm``, both, for calls shorter than their launch.
    """
    cp = driver.cupy()
    scratch = cp.empty(flush, cp.uint8) if flush else None
    for call in calls.values():
        for _ in range(warmup):
            call()
    events: dict[str, list] = {name: [] for name in calls}
    count = {name: rounds if isinstance(rounds, int) else rounds[name] for name in calls}
    for i in range(max(count.values())):
        names = [name for name in calls if i < count[name]]
        for name in names[i % len(names) :] + names[: i % len(names)]:
            call = calls[name]
            if scratch is not None:
                scratch.fill(1)
            if scratch is None or warm:
                call()
            start, stop = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            for _ in range(repeat):
                call()
            stop.record()
            events[name].append((start, stop))
        stop.synchronize()
    return {name: _times(pairs, repeat) for name, pairs in events.items()}


def _times(pairs: list, repeat: int) -> Times:
    cp = driver.cupy()
    seconds = [cp.cuda.get_elapsed_time(a, b) / 1e3 / repeat for a, b in pairs]
    if len(seconds) == 1:
        return Times(seconds[0], seconds[0], seconds[0], 1)
    low, median, high = statistics.quantiles(seconds, n=4)
    return Times(low, median, high, len(seconds))


class Laps:
    """Where seconds go, by parts that come one after another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def __call__(self, part: str) -> None:
        """What went by since the last call was for this part."""
        now = time.monotonic()
        self.seconds[part] = round(self.seconds.get(part, 0) + now - self._last, 2)
        self._last = now
