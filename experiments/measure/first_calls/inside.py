"""What a fresh process measures of itself: ``python -m …first_calls.inside NAME,METHOD,CACHE``.

Nothing of winolab is imported before the clock runs.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

EMPTY, FILLED, NONE = "empty", "filled", ""  # what a case finds in the cache
IMAGES = 32
LAYER = (IMAGES, 56, 56, 64), (64, 3, 3, 64)
Row = dict[str, Any]


def imported() -> Row:
    """Seconds of ``import winolab`` in this process, and until its function is there."""
    started = time.perf_counter()
    import winolab

    imported = time.perf_counter()
    assert winolab.conv_forward
    return {"seconds": imported - started, "next_seconds": time.perf_counter() - imported}


def called() -> Row:
    """Seconds of a first call, and of a second one of another shape, in this process."""
    import winolab
    from winolab.gpu import driver

    cp = driver.cupy()
    x, w = (cp.ones(shape, dtype="float32") for shape in LAYER)
    found = []
    for a in (x, cp.ascontiguousarray(x[:, :28, :28])):
        cp.cuda.Device().synchronize()
        started = time.perf_counter()
        winolab.conv_forward(a, w, padding=1)
        cp.cuda.Device().synchronize()
        found.append(time.perf_counter() - started)
    return {"seconds": found[0], "next_seconds": found[1]}


def network(kind: str, method: str, cache: str, tiny: bool = False) -> Row:
    """Seconds of Inception-v3's first forward pass and its first step, in this process."""
    import torch

    import winolab.torch
    from experiments.networks.others import inception_v3
    from winolab.torch.plain import NATIVE

    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, images = (107, 2) if tiny else (299, IMAGES)
    order: Any = {"memory_format": torch.channels_last}
    model = inception_v3().to(device, **order).eval()
    x = torch.randn(images, 3, size, size, device=device).to(**order)
    if method == "winolab":
        winolab.torch.convert(model)
    half = torch.float16 if device == "cuda" else torch.bfloat16

    def cast() -> AbstractContextManager[Any]:
        return torch.autocast(device, half) if kind == "fp16" else nullcontext()

    def forward() -> None:
        with torch.no_grad(), cast():
            model(x)

    def step() -> None:
        with cast():
            loss = model(x).float().square().mean()
        loss.backward()

    row: Row = {}
    for name, part in (("forward", forward), ("step", step)):
        model.train(part is step)
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        if cache == EMPTY and method == "winolab" and device == "cuda":
            with cast():
                warmed = winolab.torch.warmup(model, x, progress=False, wait=False)
            row[f"{name}_compiled"] = len(warmed.compiled)
            row[f"{name}_compiling_seconds"] = sum(seconds for _, seconds in warmed.compiled)
            row[f"{name}_slowest_seconds"] = max((s for _, s in warmed.compiled), default=0.0)
        part()
        if device == "cuda":
            torch.cuda.synchronize()
        row[f"{name}_seconds"] = time.perf_counter() - started
    if method == "winolab":
        NATIVE.wait()  # what is compiled is kept for the next process
    return row


PARTS = {
    "import": lambda method, cache: imported(),
    "call": lambda method, cache: called(),
    "fp32": partial(network, "fp32"),
    "fp16": partial(network, "fp16"),
}

if __name__ == "__main__":
    name, method, cache = sys.argv[1].split(",")
    print(json.dumps(PARTS[name](method, cache)))
