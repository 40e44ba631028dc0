"""What a fresh process measures of itself: ``python -m …first_calls.inside NAME,METHOD,CACHE`` and
what of a network, ``,forward`` or ``,step``; else both.

Nothing of winolab is imported before the clock runs.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

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


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Seconds by what they go to, of calls of this thread meanwhile: ``plan`` and ``source``, made
    or read; ``cubin``, found and verified, or compiled; ``load``, by the driver; ``prepare``, these
    and the rest of preparing a call; ``filter``, the same of filters that are kept."""
    from winolab.gpu.runtime import call, conv, loader, planned

    spent: dict[str, float] = {}
    places = {
        "plan": (planned, "planned"),
        "source": (call, "source_of"),
        "cubin": (loader, "_cubins"),
        "load": (loader, "_kernels"),
        "prepare": (conv, "prepare_call"),
        "filter": (conv, "transform"),
    }
    mine = threading.get_ident()

    def clocked(name: str, function: Any) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                if threading.get_ident() == mine:
                    spent[name] = spent.get(name, 0.0) + time.perf_counter() - started

        return run

    with ExitStack() as stack:
        for name, (where, attribute) in places.items():
            function = clocked(name, getattr(where, attribute))
            stack.enter_context(patch.object(where, attribute, function))
        yield spent


def called() -> Row:
    """Seconds of a first call, and of a second one of another shape, in this process."""
    started = time.perf_counter()
    import winolab

    assert winolab.conv_forward
    row: Row = {"import_seconds": time.perf_counter() - started}
    started = time.perf_counter()
    from winolab.gpu import driver

    cp = driver.cupy()
    row["cupy_seconds"] = time.perf_counter() - started
    started = time.perf_counter()
    x, w = (cp.ones(shape, dtype="float32") for shape in LAYER)
    cp.cuda.Device().synchronize()
    row["context_seconds"] = time.perf_counter() - started
    for name, a in (("seconds", x), ("next_seconds", cp.ascontiguousarray(x[:, :28, :28]))):
        cp.cuda.Device().synchronize()
        started = time.perf_counter()
        import winolab.gpu.runtime.conv

        imported = time.perf_counter() - started
        with timed() as spent:
            winolab.conv_forward(a, w, padding=1)
            cp.cuda.Device().synchronize()
        row[name] = time.perf_counter() - started
        row[name.replace("seconds", "parts")] = {"import": imported, **spent}
    return row


def plans() -> Row:
    """The processor's seconds of planning Inception-v3's layers forward, for an H200 that need not
    be there, and of knowing their kernels' sources, by precision; what that imports counts."""
    from winolab.bench.networks import layers_of
    from winolab.device import datasheet
    from winolab.gpu import warm
    from winolab.options import ConvOptions

    device, row = datasheet("h200"), {}
    found = [layer.problem for layer, _ in layers_of("inception_v3")]
    for precision in ("fp32", "fp16"):
        started, distinct = time.process_time(), set()
        options = ConvOptions(precision=precision, tolerance="direct:4").checked()
        for problem in found:
            if problem.batch == IMAGES:
                units = warm.calls_units("forward", problem, device, options, kept=True)
                distinct.update(unit.source for unit in units)
        row[f"{precision}_seconds"] = time.process_time() - started
        row[f"{precision}_kernels"] = len(distinct)
    return row


def network(
    kind: str, method: str, cache: str, tiny: bool = False, only: tuple[str, ...] = ()
) -> Row:
    """Seconds of Inception-v3's first forward pass and its first step, or of ``only`` one of them,
    in this process."""
    started = time.perf_counter()
    import torch

    row: Row = {"torch_seconds": time.perf_counter() - started}
    started = time.perf_counter()
    import winolab.torch

    row["import_seconds"] = time.perf_counter() - started
    from experiments.networks.others import inception_v3
    from winolab.torch.plain import NATIVE

    device = "cuda" if torch.cuda.is_available() else "cpu"
    started = time.perf_counter()
    torch.zeros(1, device=device).item()
    row["context_seconds"] = time.perf_counter() - started
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

    for name, part in (("forward", forward), ("step", step)):
        if only and name not in only:
            continue
        model.train(part is step)
        if device == "cuda":
            torch.cuda.synchronize()
        started, worked = time.perf_counter(), time.process_time()
        with timed() as spent:
            if cache == EMPTY and method == "winolab" and device == "cuda":
                with cast():
                    warmed = winolab.torch.warmup(model, x, progress=False, wait=False)
                row[f"{name}_warmup_seconds"] = time.perf_counter() - started
                row[f"{name}_compiled"] = len(warmed.compiled)
                row[f"{name}_compiling_seconds"] = sum(seconds for _, seconds in warmed.compiled)
                row[f"{name}_slowest_seconds"] = max((s for _, s in warmed.compiled), default=0.0)
                row[f"{name}_processor_seconds"] = time.process_time() - worked
            part()
            if device == "cuda":
                torch.cuda.synchronize()
        row[f"{name}_seconds"] = time.perf_counter() - started
        row[f"{name}_parts"] = dict(spent)
    if method == "winolab":
        NATIVE.wait()  # what is compiled is kept for the next process
    return row


PARTS = {
    "import": lambda method, cache, only: imported(),
    "plans": lambda method, cache, only: plans(),
    "call": lambda method, cache, only: called(),
    "fp32": lambda method, cache, only: network("fp32", method, cache, only=only),
    "fp16": lambda method, cache, only: network("fp16", method, cache, only=only),
}

if __name__ == "__main__":
    # typer's imports would be timed with winolab's
    if len(sys.argv) != 2 or sys.argv[1].count(",") < 2:
        raise SystemExit("inside takes NAME,METHOD,CACHE[,PART]; first_calls runs it")
    name, method, cache, *only = sys.argv[1].split(",")
    print(json.dumps(PARTS[name](method, cache, tuple(only))))
