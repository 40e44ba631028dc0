"""Γ on a GPU over and over, sums shared by clusters above all: right, and every time the same bits.

A race shows once in many launches, in company: launches alternate between two streams, which run
at the same time, among other kernels, into outputs of NaN.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.gpu.families.gamma_ffma.config import CONFIGS
from winolab.ref.error.metrics import noise_gain

LAUNCHES = 200
SHAPES = {
    "gamma:8:6:3": ((4, 40, 41, 64), (128, 9, 9, 64), 4),
    "gamma:8:4:5": ((32, 7, 7, 256), (256, 5, 5, 256), 2),
    "gamma:16:8:9": ((2, 32, 32, 64), (96, 9, 9, 64), 4),
    "direct": ((8, 14, 14, 256), (128, 3, 3, 256), 1),
}


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "shared"), [(1, False), (8, True)])
@pytest.mark.parametrize("split_k", [1, 2, 4])
@pytest.mark.parametrize(
    ("text", "change"),
    [
        *((text, {}) for text in SHAPES),
        ("gamma:16:8:9", {"load_warp": True, "partial": 18}),
    ],
)
def test_the_same_bits_every_time(text, change, split_k, rows, shared) -> None:
    direction = "forward" if split_k == 2 or shared else "backward_data"
    from tests.gpu.support.convolved import convolved
    from winolab.bench import oracle
    from winolab.gpu import driver

    cp = driver.cupy()
    x, w, padding = SHAPES[text]
    problem, algorithm = Problem.of(x, w, padding=padding), parse_algorithm(text)
    shape = CONFIGS[algorithm.tiles[0].alpha if algorithm.kind == "gamma" else 1][0]
    config = replace(shape, rows=rows, share=w[1] if shared else 1, split_k=split_k, **change)
    first, last = (x, problem.y_shape) if direction == "forward" else (problem.y_shape, x)
    rng = cp.random.default_rng(split_k)
    a, b = (rng.random(s, dtype="float32") * 2 - 1 for s in (first, w))
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    call = partial(convolved, direction)
    expected = cp.full(last, cp.nan, "float32")
    call(a, b, problem=problem, algorithm=algorithm, config=config, out=expected)
    exact = oracle.fp64(direction, problem, a, b)
    gain = noise_gain(algorithm) if algorithm.kind == "gamma" else 1
    # As in test_gamma_hosted: 0.30 u √(terms · gain), and 3 for the transforms' own roundings.
    assert oracle.relative_rms(expected, exact) <= 0.9 * 2**-24 * (b.size // w[0] * gain) ** 0.5
    cp.cuda.Device().synchronize()
    different = []
    noise = cp.ones((512, 512), "float32")
    for stream in streams:
        with stream:
            different.append(cp.zeros((), "int64"))
            stream.synchronize()
    outs = [cp.empty(last, "float32") for _ in streams]
    for i in range(LAUNCHES):
        with streams[i % 2]:
            out = outs[i % 2]
            out.fill(cp.nan)
            if i % 3 == 0:
                cp.matmul(noise, noise)
            call(a, b, problem=problem, algorithm=algorithm, config=config, out=out)
            different[i % 2] += cp.count_nonzero(out.view("uint32") != expected.view("uint32"))
    cp.cuda.Device().synchronize()
    assert [int(d) for d in different] == [0, 0]
