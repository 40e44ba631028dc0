"""How fast a kernel is, interleaved with others, and how much memory it takes beside its arrays."""

from __future__ import annotations

import importlib
import math
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from winolab import conv
from winolab.bench import compare
from winolab.bench.compare import Effort
from winolab.bench.contenders import Arrays, Contender
from winolab.gpu import driver
from winolab.judge.candidate import Candidate
from winolab.judge.claim import Claim
from winolab.judge.data import made
from winolab.judge.libraries import Torch
from winolab.judge.problems import text
from winolab.problem import Problem, in_layout, shapes
from winolab.ref.algorithms import convolution

GROUPS = {"fp32": "fp32", "tf32": "fp32", "fp32_split": "fp32", "fp32_ffma": "fp32",
          "fp16": "fp16", "bf16": "bf16"}  # fmt: skip
FLUSH = 64 << 20  # bytes, more than a CPU's last cache
SIZE = 512  # of the square product that is a CPU's ceiling
ROUNDS, MOST_ROUNDS, SECONDS = 9, 99, 1.0  # of a CPU's times: quartiles of five say little


def timed(candidate: Candidate, claim: Claim, problem: Problem, name: str) -> list[dict[str, Any]]:
    """A row a contender: cold and warm quartiles in microseconds, effective TFLOPS, their share of
    the ceiling, the workspace in bytes where an allocator knows it.

    Raises Declined where the kernel does not serve the layer.
    """
    if candidate.arrays.cuda:
        return on_gpu([candidate], claim, problem, name)
    rows = _on_cpu(candidate, claim, problem)
    common = {"row": "time", "judged": candidate.name, "layer": name, "problem": text(problem)}
    return [{**common, **row} for row in rows]


def _on_cpu(candidate: Candidate, claim: Claim, problem: Problem) -> list[dict[str, Any]]:
    a_shape, b_shape, _ = shapes(claim.direction, problem)
    operands = [v.astype(claim.dtype) for v in made("uniform", a_shape, b_shape)]
    library = candidate.arrays
    laid = []
    for shape, values in zip(candidate.shapes(problem), (*operands, None), strict=True):
        array = library.view(library.flat(math.prod(shape), claim.dtype), shape, _steps(shape), 0)
        if values is not None:
            first = candidate.layout == "channels_first"
            library.put(array, np.moveaxis(values, -1, 1) if first else values)
        laid.append(array)
    a, b, out = laid
    calls: dict[str, Callable[[], Any]] = {
        candidate.name: lambda: candidate(a, b, problem, out if candidate.out else None),
        **_ours(claim, operands, problem),
    }
    if find_spec("torch"):
        calls |= _torch(claim, operands, problem)
    for call in calls.values():
        call()
    workspace = bytes_beside(candidate, calls[candidate.name], out)
    times = interleaved(calls, SECONDS)
    ceiling = _product(claim)
    rows = []
    for name, (cold, warm) in times.items():
        tflops = 2 * problem.macs / statistics.median(cold) / 1e12
        rows.append({
            "method": name,
            "cold_us": _quartiles(cold),
            "warm_us": _quartiles(warm),
            "rounds": len(cold),
            "tflops": float(f"{tflops:.3g}"),
            "ceiling_tflops": float(f"{ceiling:.3g}"),
            "share": float(f"{tflops / ceiling:.3g}"),
            "workspace": workspace if name == candidate.name else None,
        })  # fmt: skip
    return rows


def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in shape[:0:-1]:
        steps.insert(0, steps[0] * size)
    return tuple(steps)


def _ours(claim: Claim, operands: list[np.ndarray], p: Problem) -> dict[str, Callable[[], Any]]:
    """This package's reference: FP64 sums, and the claim's algorithm in its precision."""
    shape = shapes(claim.direction, p)[2]
    more = () if claim.direction == "forward" else (shape,)
    geometry = {"stride": p.stride, "padding": p.padding, "dilation": p.dilation,
                "groups": p.groups}  # fmt: skip
    wide = [v.astype(np.float64) for v in operands]
    calls: dict[str, Callable[[], Any]] = {
        "winolab FP64": lambda: getattr(convolution, claim.direction)(*wide, p)
    }
    run = partial(getattr(conv, f"conv_{claim.direction}"), *operands, *more, **geometry)
    with suppress(ValueError, TypeError):  # what cannot run such a layer, or is another library's
        named = partial(run, algorithm=claim.named(p), precision=claim.precision)
        named()
        calls[f"winolab {claim.algorithm} {claim.precision}"] = named
    return calls


def _torch(claim: Claim, operands: list[np.ndarray], p: Problem) -> dict[str, Callable[[], Any]]:
    """PyTorch's convolution in both memory orders, where it has one."""
    if any(lo != hi for lo, hi in p.padding) or p.ndim > 3:
        return {}
    torch = importlib.import_module("torch")
    library = Torch(cuda=False)
    pads = tuple(lo for lo, _ in p.padding)
    zeros, groups = [0] * p.ndim, p.groups
    shape = in_layout(shapes(claim.direction, p)[2], "channels_first")
    calls: dict[str, Callable[[], Any]] = {}
    for name, dense in (("torch", True), ("torch channels last", False)):
        a, b = (
            library.tensor(np.moveaxis(v, -1, 1)).contiguous() if dense
            else library.tensor(v).movedim(-1, 1)
            for v in operands
        )  # fmt: skip
        if claim.direction == "forward":
            run = getattr(torch.nn.functional, f"conv{p.ndim}d")
            calls[name] = partial(run, a, b, None, p.stride, pads, p.dilation, groups)
            continue
        data = claim.direction == "backward_data"
        like = torch.empty(shape, dtype=a.dtype)
        x, w, dy = (like, b, a) if data else (a, like, b)
        calls[name] = partial(
            torch.ops.aten.convolution_backward, dy, x, w, None, p.stride, pads, p.dilation, False,
            zeros, groups, [data, not data, False],
        )  # fmt: skip
    return calls


def interleaved(
    calls: dict[str, Callable[[], Any]], seconds: float
) -> dict[str, tuple[list[float], list[float]]]:
    """Cold and warm seconds of each, in turn, another one first in each round: at least ROUNDS
    rounds, and more for ``seconds``, up to MOST_ROUNDS."""
    scratch = np.empty(max(FLUSH, 2 * _last_cache()), np.uint8)
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in calls}
    names, end = list(calls), time.perf_counter() + seconds
    for turn in range(MOST_ROUNDS):
        if turn >= ROUNDS and time.perf_counter() > end:
            break
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            for warm in (0, 1):
                if not warm:
                    scratch[...] = turn % 256
                started = time.perf_counter()
                calls[name]()
                found[name][warm].append(time.perf_counter() - started)
    return found


def _last_cache() -> int:
    """Bytes of the CPU's last cache, as Linux tells them; 0 where it does not."""
    told = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = [path.read_text().strip() for path in told]
    return max((int(s[:-1]) * units[s[-1]] for s in sizes if s[-1:] in units), default=0)


def _product(claim: Claim) -> float:
    """TFLOPS of a square product of the claim's type, the faster of NumPy's in FP32 and PyTorch's:
    what the same cores do at their best."""
    a = np.ones((SIZE, SIZE), np.float32)
    products: list[Callable[[], Any]] = [lambda: np.matmul(a, a)]
    if find_spec("torch"):
        b = Torch(cuda=False).tensor(a.astype(claim.dtype))
        products.append(lambda: b @ b)
    times = []
    for _ in range(ROUNDS):
        for product in products:
            started = time.perf_counter()
            product()
            times.append(time.perf_counter() - started)
    return 2 * SIZE**3 / min(times) / 1e12


def bytes_beside(candidate: Candidate, call: Callable[[], Any], out: Any) -> int | None:
    """Bytes that the allocator of the candidate's arrays held beside the result, at most: NumPy's
    by tracemalloc, PyTorch's on the CPU by its profiler; None where neither gave the result out."""
    result = math.prod(out.shape) * out.itemsize
    if candidate.arrays.name == "torch":
        torch = importlib.import_module("torch")
        with _silent(), torch.profiler.profile(profile_memory=True) as profiler:
            call()
        events = profiler.profiler.kineto_results.events()
        told = sorted(
            (e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]" and e.nbytes()
        )
        peak = max(accumulate((size for _, size in told), initial=0))
    else:
        tracemalloc.start()
        try:
            kept = call()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        del kept
    given = 0 if candidate.out else result
    return peak - given if peak >= given else None


@contextmanager
def _silent() -> Iterator[None]:
    """Without what PyTorch's profiler writes to standard error."""
    held, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(held, 2)
        os.close(held)
        os.close(nothing)


def _quartiles(seconds: list[float]) -> list[float]:
    return [round(s * 1e6, 2) for s in statistics.quantiles(seconds, n=4)]


def on_gpu(
    candidates: Sequence[Candidate], claim: Claim, problem: Problem, name: str
) -> list[dict[str, Any]]:
    """The rows of ``winolab bench``, with kernels that claim the same among them.

    Raises Declined where one does not serve the layer.
    """
    group = GROUPS[claim.precision.partition(",")[0]]
    guests = [_guest(candidate, problem, group) for candidate in candidates]
    device = driver.device(0)
    ceiling = (device.fp16_peak if group != "fp32" else device.fp32_peak) / 1e12
    rows = compare.compare(claim.direction, problem, group, None, Effort(), guests=guests)
    compare.free()
    for row in rows:
        if "tflops" in row and ceiling:
            row["ceiling_tflops"] = round(ceiling, 1)
            row["share"] = float(f"{row['tflops'] / ceiling:.3g}")  # a slow kernel's is no 0
    who = ", ".join(candidate.name for candidate in candidates)
    common = {"row": "time", "judged": who, "layer": name, "problem": text(problem)}
    return [{**common, **row} for row in rows]


def _guest(candidate: Candidate, problem: Problem, group: str) -> Contender:
    order = "NHWC" if candidate.layout == "channels_last" else "NCHW"
    held: dict[int, tuple[Arrays, tuple]] = {}  # with the arrays, whose id is no other's meanwhile

    def arrays_of(arrays: Arrays) -> tuple:
        if id(arrays) not in held:
            given = [*arrays.operands[order], arrays.results[order]]
            held[id(arrays)] = arrays, tuple(_as(candidate, each, group) for each in given)
        return held[id(arrays)][1]

    def run(arrays: Arrays, workspace: int) -> Any:
        a, b, out = arrays_of(arrays)
        found = candidate(a, b, problem, out if candidate.out else None)
        if candidate.out:
            return None
        if candidate.arrays.name == "torch":
            return found if order == "NCHW" else found.movedim(-1, 1)
        return found if order == "NHWC" else driver.cupy().moveaxis(found, 1, -1)

    labels = {"method": "judged", "kernel": candidate.name, "products": group}
    size = _device_workspace(candidate, problem, group, run)
    return Contender(candidate.name, order, None, {**labels, "held_bytes": size}, run)


def _as(candidate: Candidate, array: Any, group: str) -> Any:
    if candidate.arrays.name != "torch":
        return array
    torch = importlib.import_module("torch")
    tensor = torch.from_dlpack(array)
    return tensor.view(torch.bfloat16) if group == "bf16" else tensor


def _device_workspace(
    candidate: Candidate, problem: Problem, group: str, run: Callable[[Arrays, int], Any]
) -> int:
    """Bytes that a second call takes of the allocator, at most, beside a result that it returns."""
    cp = driver.cupy()
    arrays = Arrays(candidate.direction, problem, group)
    arrays.fill(-1, 1)
    run(arrays, 0)
    result = 0 if candidate.out else arrays.results["NHWC"].nbytes
    if candidate.arrays.name == "torch":
        cuda = importlib.import_module("torch").cuda
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        run(arrays, 0)
        cuda.synchronize()
        return max(0, cuda.max_memory_allocated() - before - result)
    with _counting(cp) as counted:
        run(arrays, 0)
    return max(0, counted["most"] - result)


@contextmanager
def _counting(cp: Any) -> Iterator[dict[str, int]]:
    """What CuPy's pool hands out meanwhile: bytes held now, and at most."""
    held = {"now": 0, "most": 0}

    class Hook(cp.cuda.MemoryHook):
        name = "winolab judge"

        def malloc_postprocess(self, **told: Any) -> None:
            held["now"] += told["mem_size"]
            held["most"] = max(held["most"], held["now"])

        def free_postprocess(self, **told: Any) -> None:
            held["now"] -= told["mem_size"]

    with Hook():
        yield held
