"""What a jitted call of JAX costs on a GPU: ``python -m experiments.measure.ways.jax_cost``.

A row a layer of a list, a dtype and a way: XLA's own convolution (in FP32 with
lax.Precision.HIGHEST, which asks for no TF32) and winolab.jax's. ``host_us`` is what the host takes
to begin a call that nobody waits for, ``call_us`` one that is waited for, ``device_us`` the share
of one in a jitted chain of CHAIN, each of which takes the result before: the device's time, where
that is longer than what begins it. ``gradient_us`` is a jitted call of both gradients that is
waited for. All are the least means of ROUNDS series, in microseconds. Rows replace
experiments/results/jax_cost.jsonl.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jax import lax

from experiments.harness.tables import RESULTS
from winolab.cli import bench, environment
from winolab.jax import conv_general_dilated
from winolab.lines import rewrite
from winolab.problem import Problem

OUTPUT = RESULTS / "jax_cost.jsonl"
CHAIN, CALLS, ROUNDS = 16, 10, 5
HOW: dict[str, Any] = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
WAYS: dict[str, Callable[..., Any]] = {
    "lax": partial(lax.conv_general_dilated, precision=lax.Precision.HIGHEST),
    "winolab.jax": conv_general_dilated,
}


def least(call: Callable[[], Any], wait: bool) -> float:
    """Microseconds a call, of the best series; ``wait``: for each, else for none in the series."""
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            y = call()
            if wait:
                jax.block_until_ready(y)
        found.append((time.perf_counter() - started) / CALLS)
        jax.block_until_ready(y)  # pyright: ignore[reportPossiblyUnboundVariable]
    return 1e6 * min(found)


def row(problem: Problem, dtype: str, way: str) -> dict[str, Any]:
    """The row of a layer whose result is as large as its input."""
    rng = np.random.default_rng(0)
    p = problem
    x = jnp.asarray(rng.uniform(-1, 1, p.x_shape), dtype)
    scale = np.sqrt(3 / np.prod(p.w_shape[1:]))  # of which a result varies as the input does
    w = jnp.asarray(rng.uniform(-scale, scale, (*p.filter, p.in_channels, p.out_channels)), dtype)
    conv = partial(WAYS[way], window_strides=p.stride, padding=p.padding, **HOW)
    one = jax.jit(conv)
    chain = jax.jit(lambda x, w: lax.fori_loop(0, CHAIN, lambda _, y: conv(y, w), x))
    both = jax.jit(lambda x, w, dy: jax.vjp(conv, x, w)[1](dy))
    dy = jax.block_until_ready(one(x, w))
    jax.block_until_ready((chain(x, w), both(x, w, dy)))
    return {
        "layer": "x".join(map(str, (*p.x_shape, p.out_channels, *p.filter))),
        "dtype": dtype,
        "way": way,
        "host_us": round(least(lambda: one(x, w), wait=False), 2),
        "call_us": round(least(lambda: one(x, w), wait=True), 2),
        "device_us": round(least(lambda: chain(x, w), wait=True) / CHAIN, 2),
        "gradient_us": round(least(lambda: both(x, w, dy), wait=True), 2),
    }


def main(
    layers: Annotated[str, typer.Option(help="As of winolab bench.")] = "resnet",
    dtypes: Annotated[str, typer.Option(help="With commas.")] = "float32,float16",
    seconds: Annotated[float, typer.Option(help="Time after which no row is begun.")] = 60,
    output: Annotated[Path, typer.Option(help="File of rows.")] = OUTPUT,
) -> None:
    """Time jitted calls on JAX's first device."""
    end, device = time.monotonic() + seconds, jax.devices()[0]
    machine = {**environment.provenance(), "jax": jax.__version__, "device": device.device_kind}
    rows = []
    for _, layer in bench.named(layers):
        for dtype in dtypes.split(","):
            for way in WAYS:
                if time.monotonic() > end:
                    print(f"{layer} {dtype} {way}: left out: no time")
                    continue
                found = row(layer.problem, dtype, way)
                rows.append({**machine, **found})
                times = {key: value for key, value in found.items() if key.endswith("_us")}
                said = " ".join(f"{key} {value:8.1f}" for key, value in times.items())
                print(f"{found['layer']:24} {dtype:8} {way:12} {said}", flush=True)
                rewrite(output, rows)


if __name__ == "__main__":
    typer.run(main)
