"""One side of ``two_trees``: times calls of the winolab that its Python finds.

A line of JSON on standard input is a case, which is prepared and called, or ``{}``, which asks for
the time of one more call; a line on standard output answers. It imports nothing of this repository
beside winolab, so that it serves a tree of another commit.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

FLUSH = 512 << 20  # bytes that are written before a call: cold L2, and time to queue it


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
    given = {"padding": case["padding"], "precision": case["precision"], "out": out}
    return lambda: call(*arrays, *shape, **given)


def answers() -> None:
    """Answer line after line."""
    import torch  # pyright: ignore[reportMissingImports]

    scratch = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")
    call: Callable[[], Any] | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if asked:
            call = None  # frees its arrays
            torch.cuda.empty_cache()
            call = prepared(asked)
            out = call()
            call()
            values = out.cpu().view(torch.uint8).numpy()
            answer: dict[str, Any] = {"bits": hashlib.sha256(values).hexdigest()[:16]}
        elif call:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
            scratch.fill_(1)
            begin.record()
            call()
            end.record()
            end.synchronize()
            answer = {"us": 1e3 * begin.elapsed_time(end)}
        else:
            answer = {}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    answers()
