"""One side of ``two_trees``: times calls of the winolab that its Python finds.

A line of JSON on standard input is a case, which is prepared and called, or ``{}``, which asks for
the time of one more call; a line on standard output answers: ``us`` of the GPU, ``host_us`` until
the call returned, and ``late`` where the GPU waited for the host, so that ``us`` has time of the
host, too. It imports nothing of this repository beside winolab, so that it serves a tree of another
commit.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

FLUSH = 512 << 20  # bytes that are written before a call: cold L2
QUEUED = 2e-3  # seconds that writing takes, again and again: the host queues the call meanwhile
LONGER = 3  # times that more is queued, where the host was late
# Calls before the first that is timed: the sixteenth makes a CUDA graph. Long ones are fewer.
WARM, FEW, ENOUGH = 24, 8, 0.05


def prepared(case: dict[str, Any]) -> Callable[[], Any]:
    """The case's call, on random channels-last arrays of a fixed seed."""
    import torch  # pyright: ignore[reportMissingImports]

    import winolab

    made = torch.Generator("cuda").manual_seed(43)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(case["precision"], torch.float32)
    arrays = [
        (2 * torch.rand(shape, generator=made, device="cuda") - 1).to(dtype)
        for shape in case["operands"]
    ]
    call = getattr(winolab, f"conv_{case['direction']}")
    shape = [tuple(case["result"])] if case["direction"] != "forward" else []
    out = torch.full(case["result"], float("nan"), device="cuda", dtype=dtype)
    # A tuple: commits before e6710d51 keep no call of a list, and prepare each anew.
    given = {"padding": tuple(case["padding"]), "precision": case["precision"], "out": out}
    return lambda: call(*arrays, *shape, **given)


class Timer:
    """Times calls with a cold L2, none of which the GPU waits for."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._scratch = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")
        self._scratch.fill_(1)
        writing = min(self._timed(self._flush, 0)["us"] for _ in range(3))
        self._count = max(1, math.ceil(1e6 * QUEUED / writing))

    def warm_up(self, call: Callable[[], Any]) -> Any:
        """Call it until its next calls are as all that follow; what the first gave."""
        found = call()
        self._torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(1, WARM):
            if i >= FEW and time.perf_counter() > begin + ENOUGH:
                break
            call()
            self._torch.cuda.synchronize()
        return found

    def time(self, call: Callable[[], Any]) -> dict[str, Any]:
        """The answer of one more call."""
        answer: dict[str, Any] = {}
        for longer in range(LONGER + 1):
            answer = self._timed(call, self._count << longer)
            if not answer["late"]:
                break
        return answer

    def _flush(self) -> None:
        self._scratch.fill_(1)

    def _timed(self, call: Callable[[], Any], flushes: int) -> dict[str, Any]:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in "ab")
        for _ in range(flushes):
            self._flush()
        begin.record()
        started = time.perf_counter()
        call()
        host = time.perf_counter() - started
        end.record()
        late = begin.query()  # the GPU was there before all of the call was queued
        end.synchronize()
        return {"us": 1e3 * begin.elapsed_time(end), "host_us": 1e6 * host, "late": late}


def answers() -> None:
    """Answer line after line."""
    import torch  # pyright: ignore[reportMissingImports]

    timer = Timer(torch)
    call: Callable[[], Any] | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if asked:
            call = None  # frees its arrays
            torch.cuda.empty_cache()
            call = prepared(asked)
            values = timer.warm_up(call).cpu().view(torch.uint8).numpy()
            answer: dict[str, Any] = {"bits": hashlib.sha256(values).hexdigest()[:16]}
        elif call:
            answer = timer.time(call)
        else:
            answer = {}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 1:
        raise SystemExit("served takes cases on standard input; two_trees runs it")
    answers()
