"""The kernels on a GPU against FP64, with poisoned outputs and guard zones."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.gpu import conv, launch
from winolab.gpu.gamma import GammaPlan
from winolab.gpu.gamma_blocks import VARIANTS
from winolab.gpu.plan import CORRELATIONS, plan
from winolab.nouns import Algorithm, Problem, direct, gamma, parse_algorithm
from winolab.ref.errors import noise_gain

pytestmark = pytest.mark.gpu
CALLS = {"forward": conv.conv_forward, "backward_data": conv.conv_backward_data}
GUARD = 4096
GAMMAS = ["4:3:2", "4:2:3", "8:7:2", "8:6:3", "8:5:4", "8:4:5", "8:3:6", "8:2:7"]
GAMMAS += ["16:10:7", "16:9:8", "16:8:9"]
LIBRARIES = ["cupy", *(["torch"] if find_spec("torch") else [])]


def fp64(direction: str, problem: Problem, x, w):
    """The convolution in FP64, tap by tap, on the GPU."""
    cp = launch.cupy()
    x, w = cp.asarray(x, "float64"), cp.asarray(w, "float64")
    forward = direction == "forward"
    pads = [(0, 0), *problem.padding, (0, 0)]
    inside = tuple(slice(lo, lo + n) for (lo, _), n in zip(pads, problem.x_shape, strict=True))
    padded = cp.zeros([lo + n + hi for (lo, hi), n in zip(pads, problem.x_shape, strict=True)])
    y = cp.zeros(problem.y_shape)
    if forward:
        padded[inside] = x
    ic = problem.in_channels // problem.groups
    oc = problem.out_channels // problem.groups
    for g in range(problem.groups):
        ins, outs = slice(g * ic, (g + 1) * ic), slice(g * oc, (g + 1) * oc)
        for tap in np.ndindex(*problem.filter):
            spatial = tuple(slice(t, t + n) for t, n in zip(tap, problem.output, strict=True))
            window = (slice(None), *spatial, ins)
            weights = w[(outs, *tap)]
            if forward:
                y[..., outs] += padded[window] @ weights.T
            else:
                padded[window] += x[..., outs] @ weights
    return y if forward else padded[inside]


def check(direction, problem, algorithm: Algorithm | None, variant=None, seed=0) -> None:
    """One call: every output written and right, nothing beside them touched."""
    cp = launch.cupy()
    rng = cp.random.default_rng(seed)
    forward = direction == "forward"
    x_shape, y_shape = problem.x_shape, problem.y_shape
    if not forward:
        x_shape, y_shape = y_shape, x_shape
    x = rng.random(x_shape, dtype="float32") * 2 - 1
    w = rng.random(problem.w_shape, dtype="float32") * 2 - 1
    size = math.prod(y_shape)
    buffer = cp.full(size + 2 * GUARD, cp.nan, "float32")
    out = buffer[GUARD : GUARD + size].reshape(y_shape)
    CALLS[direction](
        x, w, problem=problem, algorithm=algorithm, precision="fp32_ffma", out=out, variant=variant
    )
    assert bool(cp.isnan(buffer[:GUARD]).all())
    assert bool(cp.isnan(buffer[GUARD + size :]).all())
    expected = fp64(direction, problem, x, w)
    channels = problem.in_channels if forward else problem.out_channels
    terms = math.prod(problem.filter) * channels // problem.groups
    error = float(cp.sqrt(cp.mean((out - expected) ** 2) / cp.mean(expected**2)))
    # Sequential sums on zero-mean data have 0.30 u √(terms · gain) (errors.noise_gain); the
    # transforms' own roundings and small samples are given a factor of 3.
    chosen = plan(problem, direction, launch.device(0), algorithm, "fp32_ffma")
    assert isinstance(chosen, GammaPlan)
    tile = chosen.tile
    gain = noise_gain(gamma(tile.alpha, tile.n, tile.r)) if tile.alpha > 1 else 1
    assert error <= 3 * 0.30 * 2**-24 * math.sqrt((terms + 32) * gain)


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("text", GAMMAS)
def test_every_kernel_with_whole_odd_and_few_channels(text, direction) -> None:
    alpha, n, r = map(int, text.split(":"))
    for x, oc, height, padding in (
        ((2, 12, 23, 64), 64, 3, 1),
        ((3, 9, 17, 13), 37, 2, 0),
        ((2, 14, 14, 20), 130, 3, r // 2),
        ((1, 1, 40, 3), 8, 1, 0),
    ):
        pads = (0 if height == 1 else padding, padding)
        problem = Problem.of(x, (oc, height, r, x[-1]), padding=pads)
        check(direction, problem, gamma(alpha, n, r))


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("alpha", VARIANTS)
def test_every_block_shape(alpha, direction) -> None:
    n, r = {1: (1, 1), 4: (2, 3), 8: (6, 3), 16: (8, 9)}[alpha]
    algorithm = gamma(alpha, n, r) if alpha > 1 else direct()
    for variant in VARIANTS[alpha]:
        changes = [{"split": s} for s in (1, 2, 8)]
        changes += [
            {"rows": rows, "share": share, "split": 3 - share // 2, "u_stages": 2}
            for rows in (2, 8)
            for share in (1, 3)
        ]
        for change in changes:
            for channels, out_channels in ((76, 70), (19, 33)):
                problem = Problem.of(
                    (3, 13, 14, channels), (out_channels, 3, max(r, 3), channels), padding=1
                )
                check(direction, problem, algorithm, replace(variant, **change))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=0, max_size=2),
    st.sampled_from([None, "direct", *(f"gamma:{text}" for text in GAMMAS)]),
    st.tuples(st.integers(1, 3), st.integers(1, 90), st.integers(1, 150), st.integers(1, 40)),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.data(),
)
def test_random_problems(outer, text, sizes, groups, data) -> None:
    batch, channels, out_channels, width = sizes
    algorithm = text and parse_algorithm(text)
    r = algorithm.tiles[0].r if text and text != "direct" else data.draw(st.integers(1, 9))
    filter_ = (*outer, r)
    padding = tuple(data.draw(st.integers(0, size)) for size in filter_)
    spatial = tuple(data.draw(st.integers(size, size + 9)) for size in outer)
    problem = Problem.of(
        (batch, *spatial, width + r, channels * groups),
        (out_channels * groups, *filter_, channels),
        padding=padding,
        groups=groups,
    )
    direction = data.draw(st.sampled_from(CORRELATIONS))
    check(direction, problem, algorithm or None, seed=data.draw(st.integers(0, 99)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_come_back_as_they_were_given(library) -> None:
    module = importlib.import_module(library)
    rng = np.random.default_rng(0)
    first = rng.random((2, 24, 9, 11), dtype="float32")
    weights = rng.random((16, 24, 3, 3), dtype="float32")
    if library == "torch":
        x, w = (module.from_numpy(a).cuda() for a in (first, weights))
        last = x.to(memory_format=module.channels_last)
    else:
        x, w = module.asarray(first), module.asarray(weights)
        last = module.ascontiguousarray(module.moveaxis(x, 1, -1))
        last = module.moveaxis(last, -1, 1)
    problem = Problem.of((2, 9, 11, 24), (16, 3, 3, 24), padding=1)
    results = [conv.conv_forward(a, w, problem=problem, layout="channels_first") for a in (x, last)]
    for given_, y in zip((x, last), results, strict=True):
        assert type(y) is type(given_)
        assert tuple(y.shape) == (2, 16, 9, 11)
    contiguous = [
        y.is_contiguous() if library == "torch" else y.flags.c_contiguous for y in results
    ]
    assert contiguous == [True, False]
    assert bool((results[0] == results[1]).all())


def test_runs_are_equal_bit_for_bit() -> None:
    cp = launch.cupy()
    problem = Problem.of((4, 7, 7, 256), (256, 3, 3, 256), padding=1)
    x, w = cp.random.rand(*problem.x_shape, dtype="f"), cp.random.rand(*problem.w_shape, dtype="f")
    first = conv.conv_forward(x, w, problem=problem)
    assert all(bool((conv.conv_forward(x, w, problem=problem) == first).all()) for _ in range(5))


def test_a_graph_captures_the_call() -> None:
    cp = launch.cupy()
    problem = Problem.of((2, 12, 12, 32), (32, 3, 3, 32), padding=1)
    x, w = cp.random.rand(*problem.x_shape, dtype="f"), cp.random.rand(*problem.w_shape, dtype="f")
    expected = conv.conv_forward(x, w, problem=problem)
    out = cp.empty_like(expected)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        conv.conv_forward(x, w, problem=problem, out=out)  # memory for the capture to reuse
        stream.begin_capture()
        conv.conv_forward(x, w, problem=problem, out=out)
        graph = stream.end_capture()
        out.fill(cp.nan)
        graph.launch(stream)
        stream.synchronize()
    assert bool((out == expected).all())


def test_wrong_arrays_are_refused() -> None:
    cp = launch.cupy()
    problem = Problem.of((2, 9, 9, 8), (8, 3, 3, 8))
    x, w = cp.zeros(problem.x_shape, "f"), cp.zeros(problem.w_shape, "f")
    with pytest.raises(TypeError, match="float64"):
        conv.conv_forward(x.astype("d"), w, problem=problem)
    with pytest.raises(TypeError, match="CUDA array"):
        conv.conv_forward(x, np.zeros(problem.w_shape, "f"), problem=problem)
    with pytest.raises(ValueError, match="shape"):
        conv.conv_forward(x[:1], w, problem=problem)
    with pytest.raises(ValueError, match="takes float16 arrays"):
        conv.conv_forward(x, w, problem=problem, precision="fp16")
