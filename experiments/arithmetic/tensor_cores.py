"""On a GPU of sm_90a: whether simulated Tensor Cores repeat mma.sync and wgmma bit for bit.

``python -m experiments.arithmetic.tensor_cores`` multiplies 2048 instances of 64×k by k×8, two
steps of each instruction one after the other, a million sums a format: random numbers and seven
kinds that are to part models. It adds a row a format, instruction and model to
experiments/results/tensor_cores.jsonl: how many sums have the model's bits (any NaN is NaN), by
kind. WINOLAB_COMMIT names the commit. ``--preset`` judges the architecture's preset alone, which
takes seconds of the processor instead of minutes. ``--keep FOLDER`` ends behind the GPU's part, and
``--kept FOLDER`` goes on from there, on any machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.harness.facts import ROOT
from winolab.gpu import driver
from winolab.gpu.codegen.emit import unit
from winolab.gpu.params import INT, POINTER, Layout
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.loader import load
from winolab.lines import Lines
from winolab.ref.arithmetic.accumulate import Accumulation, multiply_accumulate
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.tensor_cores import TENSOR_CORES

RESULTS = ROOT / "experiments" / "results" / "tensor_cores.jsonl"
INSTANCES, ROWS, COLUMNS, STEPS = 2048, 64, 8, 2
DEPTH = {"fp16": 16, "bf16": 16, "tf32": 8}  # k of an instruction: 32 bytes
KINDS = (
    *("normal", "positive", "wide", "cancelling", "few bits"),
    *("subnormal", "special", "second larger"),
)
PARAMS = Layout(("a b c d", POINTER), ("steps", INT))
KERNELS = {"by_mma": "mma.sync", "by_wgmma": "wgmma"}
TYPES = {"fp16": ("k16", "f16"), "bf16": ("k16", "bf16"), "tf32": ("k8", "tf32")}


def source(precision: str) -> str:
    """Kernels of both instructions: rows of A and columns of B are 8 words, k along them."""
    depth, kind = TYPES[precision]
    return (
        unit(f"tensor cores, {precision}", {}, {}, ("mma",))
        + f"""
struct P {{ const unsigned *a, *b; const float* c; float* d; int steps; }};

extern "C" __global__ void __launch_bounds__(128) by_mma(const __grid_constant__ P p) {{
  const int t = threadIdx.x, g = t % 32 / 4, q = t % 4, row = t / 32 * 16 + g;
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = p.c[(blockIdx.x * 64 + row + i / 2 * 8) * 8 + 2 * q + i % 2];
  for (int s = 0; s < p.steps; ++s) {{
    const unsigned* a = p.a + (blockIdx.x * p.steps + s) * 512;
    const unsigned* b = p.b + (blockIdx.x * p.steps + s) * 64;
    unsigned fa[4], fb[2];
    for (int i = 0; i < 4; ++i) fa[i] = a[(row + i % 2 * 8) * 8 + q + i / 2 * 4];
    for (int i = 0; i < 2; ++i) fb[i] = b[g * 8 + q + i * 4];
    asm volatile("mma.sync.aligned.m16n8{depth}.row.col.f32.{kind}.{kind}.f32 "
                 "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  }}
  for (int i = 0; i < 4; ++i) p.d[(blockIdx.x * 64 + row + i / 2 * 8) * 8 + 2 * q + i % 2] = d[i];
}}

extern "C" __global__ void __launch_bounds__(128) by_wgmma(const __grid_constant__ P p) {{
  __shared__ __align__(128) unsigned a[512], b[64];
  const int t = threadIdx.x, g = t % 32 / 4, q = t % 4, row = t / 32 * 16 + g;
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = p.c[(blockIdx.x * 64 + row + i / 2 * 8) * 8 + 2 * q + i % 2];
  for (int s = 0; s < p.steps; ++s) {{
    const unsigned* from_a = p.a + (blockIdx.x * p.steps + s) * 512;
    const unsigned* from_b = p.b + (blockIdx.x * p.steps + s) * 64;
    __syncthreads();
    for (int e = t; e < 512; e += 128)
      a[e / 64 * 64 + e % 8 / 4 * 32 + e / 8 % 8 * 4 + e % 4] = from_a[e];
    if (t < 64) b[t % 8 / 4 * 32 + t / 8 * 4 + t % 4] = from_b[t];
    fence_async();
    __syncthreads();
    const auto da = matrix_descriptor(a, 128, 256), db = matrix_descriptor(b, 128, 256);
    wgmma_pin(d);
    wgmma_fence();
    asm volatile("wgmma.mma_async.sync.aligned.m64n8{depth}.f32.{kind}.{kind} "
                 "{{%0, %1, %2, %3}}, %4, %5, 1, 1, 1{", 0, 0" * (depth == "k16")};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
  }}
  for (int i = 0; i < 4; ++i) p.d[(blockIdx.x * 64 + row + i / 2 * 8) * 8 + 2 * q + i % 2] = d[i];
}}
"""
    )


def drawn(precision: str, kind: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a (count, 64, K), b (count, K, 8), c (count, 64, 8): values of the format, and of FP32."""
    rng = np.random.default_rng([DEPTH[precision], len(precision), KINDS.index(kind)])
    fmt, k = FORMATS[precision], STEPS * DEPTH[precision]
    reach = 12 if precision == "fp16" else 40
    shapes = (count, ROWS, k), (count, k, COLUMNS), (count, ROWS, COLUMNS)

    def powers(shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
        return np.exp2(rng.integers(low, high + 1, shape)) * rng.choice([-1.0, 1.0], shape)

    a, b, c = (rng.standard_normal(shape) for shape in shapes)
    if kind == "positive":
        a, b, c = (rng.uniform(1, 2, shape) for shape in shapes)
        c *= np.exp2(rng.integers(-2, 8, shapes[2]))
    elif kind == "wide":
        a, b = (v * powers(v.shape, -reach, reach if reach > 12 else 8) for v in (a, b))
        c *= powers(c.shape, -2 * reach, reach)
    elif kind == "cancelling":
        half, order = k // 2, rng.permutation(k)
        a[..., half:] = -a[..., :half]
        b[:, half:] = b[:, :half] * (1 + powers(b[:, half:].shape, -10, -1))
        a, b = a[..., order], b[:, order]
        c *= powers(c.shape, -20, 0)
    elif kind == "few bits":
        a, b, c = powers(shapes[0], -12, 0), powers(shapes[1], -13, 0), powers(shapes[2], -26, 2)
    elif kind == "subnormal":
        for v in (a, b):
            tiny = rng.integers(-1023, 1024, v.shape) * fmt.smallest_subnormal
            v[...] = np.where(rng.random(v.shape) < 0.5, tiny, v * (rng.random(v.shape) < 0.7))
        c *= powers(c.shape, -30 if precision == "fp16" else -149, 0) * (rng.random(c.shape) < 0.7)
    elif kind == "special":
        top = fmt.max if precision == "fp16" else 2.0**64
        for v in (a, b):
            v *= np.where(rng.random(v.shape) < 0.2, top, 1.0)
            chance = rng.random(v.shape)
            v[chance < 0.01], v[chance < 0.005], v[chance < 0.001] = np.inf, -np.inf, np.nan
        chance = rng.random(c.shape)
        c[chance < 0.05] = 3e38
        c[chance < 0.01], c[chance < 0.005], c[chance < 0.001] = np.inf, -np.inf, np.nan
    elif kind == "second larger":
        a[..., k // 2 :] *= np.exp2(rng.integers(-5, 6, (count, ROWS, 1)))
        b[:, k // 2 :] *= np.exp2(rng.integers(-5, 6, (count, 1, COLUMNS)))
    with np.errstate(all="ignore"):
        return fmt.round(a), fmt.round(b), c.astype(np.float32).astype(np.float64)


def words(values: np.ndarray, precision: str) -> np.ndarray:
    """Rows of k along the last axis, as (instances, steps, rows, 8) words of the instruction."""
    count, rows, _ = values.shape
    if precision == "fp16":
        raw = values.astype(np.float16).view(np.uint16)
    else:
        single = values.astype(np.float32).view(np.uint32)
        raw = single if precision == "tf32" else (single >> 16).astype(np.uint16)
    steps = raw.reshape(count, rows, STEPS, -1).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(steps).view(np.uint32)


def models(precision: str, preset: bool = False) -> Iterator[tuple[Accumulation, bool]]:
    """The published model first, then others; whether exponents are the formats' fields. With
    ``preset`` the simulation's alone.
    """
    k = DEPTH[precision]
    if preset:
        yield TENSOR_CORES["hopper"].accumulation(precision), True
        return
    for block, bits in ((k, 2), (k, 1), (k, 3), (k // 2, 2), (k // 2, 1)):
        for plain in (False, True):
            yield Accumulation("tensor_core", block, bits, "truncate"), plain


def computed(precision: str) -> dict[str, np.ndarray]:
    """What the GPU computes, by instruction."""
    cp = driver.cupy()
    a, b, c = operands(precision)
    inputs = words(a, precision), words(b.swapaxes(1, 2), precision), c.astype(np.float32)
    kernels = load(source(precision), f"tensor cores {precision}", dict.fromkeys(KERNELS, 0), 0)
    on_gpu = [cp.asarray(v) for v in inputs]
    found = {}
    for name, instruction in KERNELS.items():
        d = cp.full(c.shape, np.nan, np.float32)
        pointers = [v.data.ptr for v in (*on_gpu, d)]
        kernels[name]((INSTANCES, 1, 1), 128, PARAMS.pack(*pointers, STEPS))
        found[instruction] = cp.asnumpy(d)
    return found


def operands(precision: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``drawn`` of all kinds, one behind the other."""
    data = [drawn(precision, kind, INSTANCES // len(KINDS)) for kind in KINDS]
    a, b, c = (np.concatenate(of) for of in zip(*data, strict=True))
    return a, b, c


def judged(
    precision: str, found: dict[str, np.ndarray], preset: bool = False
) -> Iterator[dict[str, Any]]:
    """The rows of a format: how many sums have each model's bits."""
    data = operands(precision)
    for order, plain in models(precision, preset):
        lowest = 2.0 ** FORMATS[precision].emin if plain else 0.0
        parts = zip(*(np.array_split(v, 64) for v in data), strict=True)
        fp32 = FORMATS["fp32"]
        sums = [multiply_accumulate(a, b, c, order, fp32, lowest) for a, b, c in parts]
        with np.errstate(all="ignore"):
            y = np.concatenate(sums).astype(np.float32)
        for instruction, d in found.items():
            equal = (d.view(np.uint32) == y.view(np.uint32)) | (np.isnan(d) & np.isnan(y))
            by_kind = equal.reshape(len(KINDS), -1).sum(axis=1)
            yield {
                "precision": precision,
                "instruction": instruction,
                "model": str(order),
                "alignment": "exponent fields" if plain else "normalised",
                "sums": int(equal.size),
                "equal": int(equal.sum()),
                **{kind: int(n) for kind, n in zip(KINDS, by_kind, strict=True)},
            }


def main(
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
    keep: Annotated[
        Path | None, typer.Option(help="Keep what the GPU computed in this folder, and stop.")
    ] = None,
    kept: Annotated[
        Path | None, typer.Option(help="Judge what was kept in this folder: needs no GPU.")
    ] = None,
    preset: Annotated[bool, typer.Option(help="Judge the preset alone.")] = False,
) -> None:
    """Compare, and print how many bits agree."""
    if kept is None:
        where = {
            "device": driver.device(0).name,
            "driver_cuda": driver.cupy().cuda.runtime.driverGetVersion(),
            "nvrtc": "{}.{}".format(*nvrtc.version()),
            "commit": os.environ.get("WINOLAB_COMMIT", ""),
        }
        found = {precision: computed(precision) for precision in DEPTH}
        if keep:
            (keep / "where.json").write_text(json.dumps(where))
            for precision, arrays in found.items():
                np.savez_compressed(keep / f"{precision}.npz", allow_pickle=False, **arrays)
            return
    else:
        where = json.loads((kept / "where.json").read_text())
        found = {precision: dict(np.load(kept / f"{precision}.npz")) for precision in DEPTH}
    with Lines(output) as file:
        for precision, arrays in found.items():
            for row in judged(precision, arrays, preset):
                file.append(row | where)
                print(*row.values(), flush=True)


if __name__ == "__main__":
    typer.run(main)
