"""On a GPU: copies between memory orders, calls in both orders, and epilogues, beside PyTorch.

``python -m experiments.measure.memory_order [--steps copies,calls,epilogues]`` replaces the steps'
rows in experiments/results/memory_order.jsonl. Rows have quartiles in microseconds with a cold L2
cache, interleaved with the others of their case.

- copies: ``winolab`` is the kernel of layout_copy.cuh, ``torch`` PyTorch's strided copy, ``copy``
  one that moves as many bytes in order.
- calls: conv_forward of tensors that lie channels-first and channels-last, and PyTorch's in
  benchmark mode.
- epilogues: ``conv`` alone; with bias and ReLU, and a residual between them, in one call
  (``winolab``) or by PyTorch's operators behind it, in place (``behind``).

``--summary`` shows ratios of the rows that are there, without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import winolab
from experiments.harness.machines import stored
from experiments.harness.pytorch import tf32
from experiments.measure.layer_rows import Row
from experiments.measure.layers import RESULTS
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.layout_copy import KERNEL, LayoutCopy
from winolab.gpu.runtime.loader import load
from winolab.gpu.runtime.replay import Recording, address_of
from winolab.lines import rewrite

OUTPUT, ROUNDS = RESULTS / "memory_order.jsonl", 9
OURS = ("winolab", "conv")  # what methods of ours begin with
LARGE = 32e6  # bytes of an array whose copy says how fast copies may be
Calls = dict[str, Callable[[], Any]]
Shape = tuple[int, ...]

# Channels-first: aligned, then rows that begin anywhere, few channels, small maps.
COPIES: tuple[tuple[Shape, int], ...] = (
    ((1, 96, 17, 240, 416), 4), ((1, 96, 17, 240, 416), 2), ((2, 384, 5, 60, 104), 2),
    ((32, 128, 56, 56), 4), ((32, 256, 56, 56), 2), ((32, 512, 28, 28), 4),
    ((8, 1024, 4096), 4), ((8, 1024, 4096), 2), ((128, 768, 14, 14), 2),
    ((96, 2048, 7, 7), 4), ((160, 2048, 7, 7), 2), ((64, 3, 224, 224), 4),
    ((96, 3, 299, 299), 2), ((128, 197, 768), 4), ((32, 67, 61, 61), 4), ((64, 67, 61, 61), 2),
    ((64, 100, 57, 57), 2), ((32, 12, 333, 333), 2), ((32, 33, 200, 200), 4),
)  # fmt: skip
# x channels-first, output channels, taps of a cube or square.
CALLS: tuple[tuple[Shape, int, int], ...] = (
    ((1, 96, 17, 240, 416), 96, 3), ((1, 192, 9, 120, 208), 192, 3), ((1, 384, 5, 60, 104), 384, 3),
    ((32, 256, 56, 56), 64, 1), ((32, 64, 56, 56), 64, 3), ((32, 256, 14, 14), 256, 3),
)  # fmt: skip
EPILOGUES: tuple[tuple[Shape, int, int], ...] = (
    *CALLS, ((32, 64, 56, 56), 256, 1), ((32, 128, 28, 28), 128, 3),
)  # fmt: skip
PRECISIONS = ("float32", "bfloat16")


def main(
    steps: Annotated[str, typer.Option(help="With commas.")] = "copies,calls,epilogues",
    summary: Annotated[bool, typer.Option("--summary", help="Show ratios, and stop.")] = False,
    output: Annotated[Path, typer.Option(help="File of rows.")] = OUTPUT,
) -> None:
    """Measure the steps."""
    rows = stored(output) if output.exists() else []
    if not summary:
        bench.ready()
        machine = bench.context()
        with tf32(False):
            found = [{**machine, **row} for step in steps.split(",") for row in STEPS[step]()]
        rows = [row for row in rows if row["step"] not in steps.split(",")] + found
        rewrite(output, rows)
    print("\n".join(summarized(rows)))


def warmed(cases: list[tuple[Row, Calls]]) -> list[tuple[Row, Calls]]:
    """The cases, all kernels of ours compiled, on all cores."""
    ours = [f for _, calls in cases for name, f in calls.items() if name.startswith(OURS)]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda call: call() is None, ours))
    return cases


def timed(common: Row, calls: Calls) -> Iterator[Row]:
    """A row for each call."""
    for name, t in interleave(calls, rounds=ROUNDS, flush=FLUSH).items():
        low, mid, high = (round(1e6 * v, 2) for v in (t.low, t.median, t.high))
        yield {**common, "method": name, "us": mid, "quartiles_us": [low, high]}


def copies() -> Iterator[Row]:
    """Every array of COPIES, both ways."""
    torch = _torch()
    for shape, size in COPIES:
        kind = {2: torch.int16, 4: torch.int32}[size]
        most = 2 ** (8 * size - 1) - 1
        first = torch.randint(-most, most, shape, dtype=kind, device="cuda").movedim(1, -1)
        last = first.contiguous()
        plain = torch.empty_like(last)
        for way, source in (("first to last", first), ("last to first", last)):
            other = torch.empty_like(last if source is first else first)
            made = LayoutCopy.of(_layout(source), _layout(other), size)
            recording = _recorded(made)
            stream = torch.cuda.current_stream().cuda_stream
            calls: Calls = {
                "winolab": partial(recording.replay, stream, source.data_ptr(), other.data_ptr()),
                "torch": partial(other.copy_, source),
                "copy": partial(plain.copy_, last),
            }
            other.fill_(0)
            calls["winolab"]()
            assert torch.equal(source, other)
            common = {
                "step": "copies", "case": f"{_text(shape)} of {size} B, {way}",
                "bytes": first.numel() * size, "tile": list(made.tile),
                "access": [made.loads.count, made.stores.count],
            }  # fmt: skip
            yield from timed(common, calls)


def _layout(tensor: Any) -> ArrayLayout:
    return ArrayLayout(tuple(tensor.shape), tensor.stride(), tensor.data_ptr() % 16 == 0)


def _recorded(copy: LayoutCopy) -> Recording:
    kernels = load(copy.source(), "a copy in another memory order", {KERNEL: 0}, 0)
    return Recording(kernels, lambda k: copy.launch(k, address_of(0), address_of(1)))


def _operands(shape: Shape, channels: int, taps: int, dtype: str) -> tuple[Any, Any, Any]:
    """x and w channels-first, and PyTorch's memory format of the other order."""
    torch = _torch()
    kind, filter = getattr(torch, dtype), (channels, shape[1], *(taps,) * (len(shape) - 2))
    x = torch.rand(shape, device="cuda").sub_(0.5).to(kind)
    w = torch.rand(filter, device="cuda").sub_(0.5).to(kind)
    return x, w, torch.channels_last if len(shape) == 4 else torch.channels_last_3d


def calls() -> Iterator[Row]:
    """Every layer of CALLS in both memory orders."""
    torch = _torch()
    cases = []
    for shape, channels, taps in CALLS:
        conv = getattr(torch.nn.functional, f"conv{len(shape) - 2}d")
        for dtype in PRECISIONS:
            x, w, last = _operands(shape, channels, taps, dtype)
            both = {"first": (x, w), "last": [v.to(memory_format=last) for v in (x, w)]}
            made: Calls = {}
            how: dict[str, Any] = {"padding": taps // 2}
            for order, operands in both.items():
                first = partial(winolab.conv_forward, layout="channels_first")
                made[f"winolab {order}"] = partial(first, *operands, **how)
                made[f"torch {order}"] = partial(conv, *operands, **how)
            common = {"step": "calls", "case": f"{_text(shape)}:{channels}x{taps} {dtype}"}
            cases.append((common, made))
    for case in warmed(cases):
        yield from timed(*case)


def epilogues() -> Iterator[Row]:
    """Every layer of EPILOGUES, channels-last."""
    torch = _torch()
    cases = []
    for shape, channels, taps in EPILOGUES:
        for dtype in PRECISIONS:
            x, w, last = _operands(shape, channels, taps, dtype)
            x, w = (v.to(memory_format=last) for v in (x, w))
            how: dict[str, Any] = {"padding": taps // 2, "layout": "channels_first"}
            plain = partial(winolab.conv_forward, x, w, **how)
            bias = torch.rand(channels, device="cuda").to(x.dtype)
            residual = torch.rand((shape[0], channels, *shape[2:]), device="cuda").to(x.dtype)
            residual = residual.to(memory_format=last)
            wide = bias.reshape(-1, *(1,) * (len(shape) - 2))
            made: Calls = {"conv": plain}
            for name, added in {"bias relu": None, "bias residual relu": residual}.items():
                steps = {"bias": bias, "residual": added, "activation": "relu"}
                made[f"winolab {name}"] = partial(plain, **steps)
                made[f"behind {name}"] = partial(behind, plain, wide, added)
            common = {"step": "epilogues", "case": f"{_text(shape)}:{channels}x{taps} {dtype}"}
            cases.append((common, made))
    for common, made in warmed(cases):
        for name in ("bias relu", "bias residual relu"):
            assert torch.equal(made[f"winolab {name}"](), made[f"behind {name}"]())
        yield from timed(common, made)


def behind(conv: Callable[[], Any], bias: Any, residual: Any) -> Any:
    """What follows a convolution, by PyTorch's operators in place."""
    y = conv().add_(bias)
    return (y if residual is None else y.add_(residual)).relu_()


STEPS = {"copies": copies, "calls": calls, "epilogues": epilogues}


def _torch() -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    return torch


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def cases(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    """Rows by step and case, by method."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["step"], row["case"]), {})[row["method"]] = row
    return found


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """A line a case: ratios of speeds."""
    for (step, case), of in cases(rows).items():
        us = {method: row["us"] for method, row in of.items()}
        if step == "copies":
            ours, theirs = (us["copy"] / us[method] for method in ("winolab", "torch"))
            text = f"{ours:.2f} of copy speed, torch's {theirs:.2f}"
        elif step == "calls":
            text = ", ".join(f"{method} {value:.1f} µs" for method, value in us.items())
        else:
            base = us["conv"]
            more = (f"{m} {v - base:+.1f} µs" for m, v in us.items() if m != "conv")
            text = f"conv {base:.1f} µs, " + ", ".join(more)
        yield f"{step} {case}: {text}"


if __name__ == "__main__":
    typer.run(main)
