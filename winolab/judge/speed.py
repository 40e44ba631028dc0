"""How fast a kernel is, interleaved with others, and how much memory it takes beside its arrays."""

from __future__ import annotations

import importlib
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from winolab.bench import compare
from winolab.bench.compare import Effort
from winolab.bench.contenders import Arrays, Contender
from winolab.gpu import driver
from winolab.judge.candidate import Candidate
from winolab.judge.claim import Claim
from winolab.judge.data import made
from winolab.judge.problems import text
from winolab.problem import Problem, shapes
from winolab.ref.algorithms import convolution

GROUPS = {"fp32": "fp32", "tf32": "fp32", "fp32_split": "fp32", "fp32_ffma": "fp32",
          "fp16": "fp16", "bf16": "bf16"}  # fmt: skip
FLUSH = 64 << 20  # bytes, more than a CPU's last cache
SIZE = 1024  # of the square product that is a CPU's ceiling
ROUNDS = 5


def timed(candidate: Candidate, claim: Claim, problem: Problem, name: str) -> list[dict[str, Any]]:
    """A row a contender: cold and warm quartiles in microseconds, effective TFLOPS, their share of
    the ceiling, the workspace in bytes where an allocator knows it.

    Raises Declined where the kernel does not serve the layer.
    """
    rows = (_on_gpu if candidate.arrays.cuda else _on_cpu)(candidate, claim, problem)
    common = {"row": "time", "kernel": candidate.name, "layer": name, "problem": text(problem)}
    return [{**common, **row} for row in rows]


def _on_cpu(candidate: Candidate, claim: Claim, problem: Problem) -> list[dict[str, Any]]:
    a_shape, b_shape, _ = shapes(claim.direction, problem)
    operands = [v.astype(claim.dtype) for v in made("uniform", a_shape, b_shape)]
    library = candidate.arrays
    first, second, third = candidate.shapes(problem)
    laid = []
    for shape, values in zip((first, second), operands, strict=True):
        array = library.view(library.flat(values.size, claim.dtype), shape, _steps(shape), 0)
        moved = np.moveaxis(values, -1, 1) if candidate.layout == "channels_first" else values
        library.put(array, moved)
        laid.append(array)
    out = None
    if candidate.out:
        size = int(np.prod(third))
        out = library.view(library.flat(size, claim.dtype), third, _steps(third), 0)
    calls: dict[str, Callable[[], Any]] = {
        candidate.name: lambda: candidate(laid[0], laid[1], problem, out),
        "winolab FP64 reference": lambda: getattr(convolution, claim.direction)(*operands, problem),
    }
    even = all(lo == hi for lo, hi in problem.padding)
    if find_spec("torch") and claim.direction == "forward" and even and problem.ndim < 4:
        calls["torch"] = _torch(operands, problem)
    workspace = _workspace(calls[candidate.name], third, claim)
    times = _interleaved(calls)
    ceiling = _product()
    rows = []
    for name, (cold, warm) in times.items():
        tflops = 2 * problem.macs / statistics.median(cold) / 1e12
        rows.append({
            "method": name,
            "cold_us": _quartiles(cold),
            "warm_us": _quartiles(warm),
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


def _torch(operands: list[np.ndarray], p: Problem) -> Callable[[], Any]:
    torch = importlib.import_module("torch")
    a, b = (torch.from_numpy(np.ascontiguousarray(np.moveaxis(v.astype(np.float32), -1, 1)))
            for v in operands)  # fmt: skip
    call = getattr(torch.nn.functional, f"conv{p.ndim}d")
    pads = tuple(lo for lo, _ in p.padding)
    return lambda: call(a, b, None, p.stride, pads, p.dilation, p.groups)


def _interleaved(calls: dict[str, Callable[[], Any]]) -> dict[str, tuple[list, list]]:
    """Cold and warm seconds of each, in turn."""
    scratch = np.empty(FLUSH, np.uint8)
    found: dict[str, tuple[list, list]] = {name: ([], []) for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for warm in (0, 1):
                if not warm:
                    scratch[...] = 1
                started = time.perf_counter()
                call()
                found[name][warm].append(time.perf_counter() - started)
    return found


def _product() -> float:
    """TFLOPS of a square FP32 product by BLAS."""
    a = np.ones((SIZE, SIZE), np.float32)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        np.matmul(a, a)
        times.append(time.perf_counter() - started)
    return 2 * SIZE**3 / min(times) / 1e12


def _workspace(call: Callable[[], Any], third: tuple[int, ...], claim: Claim) -> int | None:
    """Bytes that NumPy's allocator held beside the result, at most; other allocators on the CPU
    tell nothing, and nothing is known where no more than the result was seen."""
    tracemalloc.start()
    try:
        result = call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if not isinstance(result, np.ndarray):
        return None
    return max(0, peak - int(np.prod(third)) * claim.dtype.itemsize)


def _quartiles(seconds: list[float]) -> list[float]:
    return [round(s * 1e6, 2) for s in statistics.quantiles(seconds, n=4)]


def _on_gpu(candidate: Candidate, claim: Claim, problem: Problem) -> list[dict[str, Any]]:
    """The rows of ``winolab bench``, with the kernel among them."""
    group = GROUPS[claim.precision.partition(",")[0]]
    guest = _guest(candidate, problem, group)
    device = driver.device(0)
    ceiling = (device.fp16_peak if group != "fp32" else device.fp32_peak) / 1e12
    rows = compare.compare(claim.direction, problem, group, None, Effort(), guests=[guest])
    compare.free()
    for row in rows:
        if "tflops" in row:
            row["ceiling_tflops"] = round(ceiling, 1)
            row["share"] = round(row["tflops"] / ceiling, 3)
    return rows


def _guest(candidate: Candidate, problem: Problem, group: str) -> Contender:
    order = "NHWC" if candidate.layout == "channels_last" else "NCHW"
    held: dict[int, tuple] = {}

    def arrays_of(arrays: Arrays) -> tuple:
        if id(arrays) not in held:
            given = [*arrays.operands[order], arrays.results[order]]
            held[id(arrays)] = tuple(_as(candidate, each, group) for each in given)
        return held[id(arrays)]

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
