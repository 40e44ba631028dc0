"""Filter gradients on Tensor Cores: plans, kernels compiled, their results against FP64."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

from tests.gpu.hosted import execute
from winolab import conv_backward_filter
from winolab.algorithm import Problem, Tile, gamma, parse_algorithm
from winolab.bench import oracle
from winolab.device import H100, datasheet
from winolab.gpu import driver
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.families.wgrad import TYPES
from winolab.gpu.families.wgrad_winograd.config import CONFIGS, MMA_CONFIGS
from winolab.gpu.families.wgrad_winograd.plan import ADMITTED, MODULI, NARROW_SEGMENTS, plans
from winolab.gpu.families.wgrad_winograd.source import source
from winolab.gpu.families.wgrad_winograd.tiling import SCALING
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.request import DTYPES as ALL_DTYPES
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms import convolution
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio, noise_gain

GUARD = 4096
DTYPES = {p: ALL_DTYPES[p] for f in FAMILIES if f.name == "wgrad_winograd" for p in f.precisions}
# The paper's kernels and direct in every precision; moduli and what the planner takes in one each.
PAPER = ("direct", "omega:4:3:2", "omega:8:3:6", "omega:8:5:4", "omega:8:7:2", "omega:16:7:10",
         "omega:16:9:8")  # fmt: skip
OTHERS = [f"omega:{t.alpha}:{t.n}:{t.r}" for t in ADMITTED]
OTHERS += [f"omega:{t.alpha}:{t.n}:{t.r}@{points}" for t, points in MODULI.items()]
KERNELS = [
    *product(PAPER, DTYPES),
    *zip((t for t in OTHERS if t not in PAPER), cycle(DTYPES), strict=False),
]

SHAPES = [
    (precision, config)
    for precision, parts in zip(DTYPES, (2, 1, 1), strict=True)
    for config in (*CONFIGS[parts], *MMA_CONFIGS[parts])
]

# Twice direct's error by the predicted ratio of Ω8, and FP32's where it is split.
BOUNDS = {"fp16": 4e-3, "fp32_split": 2e-6}


def _strides(array, kept: int) -> tuple[int, ...]:
    first, *spatial, last = (s // array.itemsize for s in array.strides)
    return (first, *three(tuple(spatial), 0), last)[:kept]


def _plan(problem: Problem, text: str | None, precision: str, **options):
    algorithm = parse_algorithm(text) if text else None
    options = {"out_dtype": "float32", **options}
    found = plans(Request(problem, "backward_filter", H100, algorithm, precision, **options))
    return min(found, key=lambda plan: plan.predicted)


@pytest.mark.parametrize(
    ("precision", "text", "shapes", "options"),
    [
        ("fp16", "omega:8:3:6", ((2, 6, 8, 64), (64, 3, 3, 64)), {"padding": 1}),
        ("fp32_split", "omega:8:3:6", ((3, 6, 9, 70), (33, 3, 3, 70)), {"padding": 1}),
        ("fp16", "direct", ((3, 4, 5, 9), (7, 2, 3, 9)), {"padding": ((1, 0), (2, 1))}),
    ],
)
def test_gradient_on_the_cpu(precision, text, shapes, options):
    """Chunks of images and rows, segments, odd channels: the kernels' own source."""
    problem = Problem.of(*shapes, **options)
    plan = _plan(problem, text, precision, config=CONFIGS[2 if precision == "fp32_split" else 1][5])
    plan = replace(plan, images=min(2, problem.batch), rows=3, segments=2)
    rng = np.random.default_rng(1)
    dtype = DTYPES[precision]
    x = rng.standard_normal(problem.x_shape).astype(dtype)
    dy = rng.standard_normal(problem.y_shape).astype(dtype)
    dw = execute(plan, x, dy)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    assert ((dw - exact) ** 2).mean() ** 0.5 <= BOUNDS[precision] * (exact**2).mean() ** 0.5


@pytest.mark.parametrize("precision", ["fp32_split", "fp16"])
def test_compiles_without_spills(precision, compiled):
    parts = 2 if precision == "fp32_split" else 1
    shapes = [*product(CONFIGS[parts], ["sm_90a"]), *product(MMA_CONFIGS[parts], ["sm_80"])]
    for config, arch in shapes:
        text = source(Tile(3, 6), "best", precision, DTYPES[precision], config)
        resources = compiled(text, arch)
        assert len(resources) == 4
        assert all(r.spills == 0 for r in resources.values()), (config, resources)


@pytest.mark.parametrize("precision", ["fp32_split", "fp16"])
def test_mma_sync_has_the_bits_of_wgmma_on_the_cpu(precision):
    problem = Problem.of((2, 5, 12, 70), (72, 3, 3, 70), padding=1)
    parts = 2 if precision == "fp32_split" else 1
    rng = np.random.default_rng(3)
    x, dy = (rng.standard_normal(s).astype(DTYPES[precision])
             for s in (problem.x_shape, problem.y_shape))  # fmt: skip
    results = []
    for config in (MMA_CONFIGS[parts][0], replace(CONFIGS[parts][5], ks=32)):
        plan = _plan(problem, "omega:8:3:6", precision, config=config)
        plan = replace(plan, images=1, rows=3, segments=2, slice=plan.taps)
        results.append(execute(plan, x, dy))
    assert (results[0] == results[1]).all()


def test_split_products_at_alpha_16_keep_the_issues_limit_where_rows_are_narrow():
    """Outputs are small against their states: FP32 alone loses 1.8e-6 of these data."""
    problem = Problem.of((96, 7, 7, 8), (8, 5, 5, 8), padding=2)
    plan = _plan(problem, "omega:16:5:12", "fp32_split")
    assert plan.segments >= NARROW_SEGMENTS
    rng = np.random.default_rng(0)
    x, dy = (rng.random(s, dtype=np.float32) for s in (problem.x_shape, problem.y_shape))
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
    assert (abs(execute(plan, x, dy) - exact) / exact).mean() <= 1e-6


def test_admitted_tiles_are_those_whose_error_is_admissible():
    assert all(error_ratio(tile) <= ADMISSIBLE for tile in ADMITTED)
    others = {Tile(11 - r, r) for r in range(2, 10)} - set(ADMITTED)
    assert all(error_ratio(tile) > ADMISSIBLE for tile in others)


def test_no_state_of_16_bit_data_overflows():
    """Rows of G and BT sum up to at most 2, which halved data allow for."""
    for tile in (*ADMITTED, Tile(5, 12), Tile(6, 11), Tile(7, 10), Tile(8, 9), Tile(9, 8)):
        made = transforms(tile.n, tile.r, "best", SCALING)
        assert max(sum(map(abs, row)) for row in (*made.G, *made.BT)) <= 2


def test_workspace_limit_is_kept_or_refused():
    problem = Problem.of((32, 56, 56, 128), (128, 3, 3, 128), padding=1)
    limit = 40 << 20
    assert _plan(problem, None, "fp16", workspace_limit=limit).workspace <= limit
    for precision in ("fp16", "fp32_split"):
        with pytest.raises(ValueError, match="limit is 1024 B: raise it, or use") as refused:
            _plan(problem, None, precision, workspace_limit=1 << 10)
        (least,) = map(int, re.findall(r"need a workspace of (\d+) B", str(refused.value)))
        assert _plan(problem, None, precision, workspace_limit=least).workspace == least
        with pytest.raises(ValueError, match=f"need a workspace of {least} B at least"):
            _plan(problem, None, precision, workspace_limit=least - 1)


def test_a_plan_tells_its_chunks_without_making_them():
    problem = Problem.of((65535, 5, 8, 16), (16, 3, 3, 16), padding=1)
    plan = _plan(problem, "omega:4:3:2", "fp16", workspace_limit=229376)
    told = str(plan)
    assert "chunks" not in vars(plan)
    assert len(plan.chunks) > 65535
    assert f"chunks     {len(plan.chunks)} of" in told


def test_other_devices_run_mma_sync():
    problem = Problem.of((1, 8, 8, 8), (8, 3, 3, 8))
    for name in ("rtx4090", "rtx3090", "a5000"):
        device = datasheet(name)
        found = list(plans(Request(problem, "backward_filter", device, None, "fp32_split")))
        assert found
        assert all(not p.config.wgmma for p in found)
        assert all(max(p.shared().values()) <= device.shared_memory for p in found)


class Operands:
    """Random x and dy of a precision's type: as the kernels read them, and in FP64."""

    def __init__(self, problem: Problem, precision: str, seed: int, scale: float = 1.0) -> None:
        cp = driver.cupy()
        rng = cp.random.default_rng(seed)
        self.stored, self.exact = [], []
        for shape in (problem.x_shape, problem.y_shape):
            values = (rng.random(shape, dtype="float32") * 2 - 1) * cp.float32(scale)
            if precision == "bf16":
                bits = values.view("uint32") >> 16
                self.stored.append(bits.astype("uint16"))
                self.exact.append((bits << 16).view("float32"))
            else:
                self.stored.append(values.astype(DTYPES[precision]))
                self.exact.append(self.stored[-1])


def _view(array, kept: int) -> View:
    return View(array.data.ptr, _strides(array, kept))


def _poisoned(shape: tuple[int, ...], dtype: str):
    """Memory of NaN (all bits set) with zones around it, and the array in it."""
    cp = driver.cupy()
    size = math.prod(shape) * cp.dtype(dtype).itemsize
    memory = cp.full(size + 2 * GUARD + 256, 0xFF, "uint8")
    return memory, memory[GUARD : GUARD + size].view(dtype).reshape(shape)


def _limit(plan, terms: int) -> float:
    """Limit of the relative RMS error on zero-mean data.

    16-bit transformed operands: 0.41 u each (a rounding uniform to ±u/2 of a number's binade), and
    what the tile's noise gain makes of it; the sums' own roundings and small samples are given a
    factor of 2. Split products: FP32's sequential sums, 0.30 u √(terms · gain), and two parts of 11
    bits; the same factor of 3 as FP32's kernels. A result of 16 bits is rounded once more.
    """
    tile = plan.tile
    points = {"points": plan.points} if tile.alpha > 1 else {}
    gain = noise_gain(gamma(tile.alpha, tile.n, tile.r, **points)) if points else 1
    unit = {"fp16": 2**-11, "bf16": 2**-8, "fp32_split": 2**-24}[plan.precision]
    if plan.precision == "fp32_split":
        limit = 3 * 0.30 * unit * math.sqrt((terms + 32) * gain)
    else:
        transformed = 2 * 0.41 * math.sqrt(2) * unit * math.sqrt(gain) if tile.alpha > 1 else 0
        limit = transformed + 3 * 0.30 * 2**-23 * math.sqrt((terms + 32) * gain)
    return limit + {"float32": 0, "float16": 2**-11, "bfloat16": 2**-8}[plan.out_dtype]


def _check(problem: Problem, plan, seed: int = 0, operands: Operands | None = None) -> None:
    """Every element written and right, nothing beside it touched, twice the same bits."""
    operands = operands or Operands(problem, plan.precision, seed)
    x, dy = operands.stored
    kernels = loader.load(plan.source(), f"{plan.kernel} {plan.config}", plan.shared(), 0)
    stored = "uint16" if plan.out_dtype == "bfloat16" else plan.out_dtype
    results = []
    for _ in range(2):
        memory, dw = _poisoned(problem.w_shape, stored)
        scratch, workspace = _poisoned((plan.workspace,), "uint8")
        plan.launch(kernels, _view(x, 4), _view(dy, 4), _view(dw, 5), workspace.data.ptr, 0)
        for zones, inside in ((memory, dw), (scratch, workspace)):
            assert bool((zones[:GUARD] == 0xFF).all())
            assert bool((zones[GUARD + inside.nbytes :] == 0xFF).all())
        results.append(dw)
    assert bool((results[0].view("uint8") == results[1].view("uint8")).all())
    dw = results[0]
    if plan.out_dtype == "bfloat16":
        dw = (dw.astype("uint32") << 16).view("float32")
    exact = oracle.fp64("backward_filter", problem, *operands.exact)
    if not bool(exact.any()):
        assert not bool(dw.any())
        return
    terms = problem.batch * math.prod(problem.output)
    assert oracle.relative_rms(dw, exact) <= _limit(plan, terms), str(plan)


def _every(problem: Problem, text: str | None, precision: str, **options):
    algorithm = parse_algorithm(text) if text else None
    options = {"out_dtype": "float32", **options}
    device = driver.device(0)
    return list(plans(Request(problem, "backward_filter", device, algorithm, precision, **options)))


def _sorted(found):
    return sorted(found, key=lambda plan: plan.predicted)


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "precision"), KERNELS)
def test_every_kernel_with_whole_odd_and_few_channels(text, precision) -> None:
    n = int(text.split(":")[2]) if text != "direct" else 1
    last = CONFIGS[2 if precision == "fp32_split" else 1][-1]
    for x, out_channels, taps, padding in (
        ((4, 12, 23, 64), 64, (3, n), (1, n // 2)),
        ((3, 9, 29, 13), 37, (2, 2 * n), (0, 2)),
        ((2, 7, 7, 96), 130, (3, n), (2, n)),
        ((1, 1, 60, 3), 8, (1, n), 0),
    ):
        problem = Problem.of(x, (out_channels, *taps, x[-1]), padding=padding)
        (found,) = _every(problem, text, precision, config=last)
        _check(problem, found)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "config"), SHAPES, ids=str)
def test_every_block_shape_call_after_call(precision, config) -> None:
    cp = driver.cupy()
    problem = Problem.of((8, 28, 28, 192), (160, 3, 3, 192), padding=1)
    operands = Operands(problem, precision, 9)
    x, dy = operands.stored
    (base,) = _every(problem, "omega:8:3:6", precision, config=config, out_dtype="float32")
    plan = replace(base, images=4, rows=14, segments=2, slice=base.taps)
    _check(problem, plan, operands=operands)
    kernels = loader.load(plan.source(), f"{plan.kernel} {plan.config}", plan.shared(), 0)
    dw, first = cp.empty(problem.w_shape, "float32"), None
    workspace = cp.full(plan.workspace, 0xFF, "uint8")
    for _ in range(200):
        dw.fill(cp.nan)
        views = _view(x, 4), _view(dy, 4), _view(dw, 5)
        plan.launch(kernels, *views, workspace.data.ptr, 0)
        first = dw.copy() if first is None else first
        assert bool((dw == first).all())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("precision", DTYPES)
def test_every_type_of_the_result(precision, kind) -> None:
    problem = Problem.of((3, 14, 20, 72), (68, 3, 3, 72), padding=1)
    _check(problem, _every(problem, "omega:8:3:6", precision, out_dtype=kind)[-1])


@pytest.mark.gpu
@pytest.mark.parametrize("precision", DTYPES)
def test_dimensions_groups_chunks_slices_and_limits(precision) -> None:
    layers: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
        ((5, 40, 16), (24, 6, 16), {"padding": 3}),
        ((2, 5, 6, 13, 20), (12, 3, 2, 5, 20), {"padding": ((1, 2), (3, 0), (4, 4))}),
        ((2, 9, 12, 24), (18, 4, 3, 8), {"padding": (3, 2), "groups": 3}),
        ((3, 2, 11, 8), (8, 5, 3, 8), {"padding": ((6, 4), (1, 1))}),  # rows that meet no input
        ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    )
    last = CONFIGS[2 if precision == "fp32_split" else 1][-1]
    for x, w, options in layers:
        problem = Problem.of(x, w, **options)
        text = "omega:8:3:6" if w[-2] % 3 == 0 else "direct"
        (whole,) = _every(problem, text, precision, config=last)
        _check(problem, whole)
        if whole.taps > 1:
            _check(problem, replace(whole, slice=1, segments=3))
        for batch in (1, 2):
            images = max(batch, problem.batch // 2)
            cut = replace(whole, images=images, rows=max(1, whole.rows // 2), batch=batch)
            _check(problem, replace(cut, segments=2))
        (least,) = _every(problem, text, precision, config=last, workspace_limit=whole.workspace)
        assert least.workspace <= whole.workspace


@pytest.mark.gpu
@pytest.mark.parametrize("precision", DTYPES)
def test_what_the_planner_takes_without_and_with_a_limit(precision) -> None:
    problem = Problem.of((6, 20, 26, 64), (96, 5, 5, 64), padding=2)
    (chosen, *_), limits = _sorted(_every(problem, None, precision)), []
    _check(problem, chosen)
    for share in (1.3, 2):
        limits.append(int(chosen.workspace / share))
        found = _sorted(_every(problem, None, precision, workspace_limit=limits[-1]))
        assert all(p.workspace <= limits[-1] for p in found)
        _check(problem, found[0])


@pytest.mark.gpu
@pytest.mark.parametrize("text", ["omega:8:3:6", "omega:16:9:8"])
def test_the_largest_numbers_of_fp16_do_not_overflow(text) -> None:
    cp = driver.cupy()
    n = int(text.split(":")[2])
    problem = Problem.of((2, 9, 20, 64), (64, 3, n, 64), padding=(1, n // 2))
    operands = Operands(problem, "fp16", 7)
    for i, scale in enumerate((65504.0, 1.0)):
        operands.stored[i] = cp.copysign(cp.float16(scale), operands.stored[i])
        operands.exact[i] = operands.stored[i]
    last = CONFIGS[1][-1]
    (found,) = _every(problem, text, "fp16", config=last, out_dtype="float32")
    _check(problem, found, operands=operands)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", DTYPES)
def test_views_of_larger_arrays_and_an_empty_batch(precision) -> None:
    cp = driver.cupy()
    problem = Problem.of((3, 10, 14, 36), (20, 3, 3, 36), padding=1)
    operands = Operands(problem, precision, 5)
    for i, array in enumerate(operands.stored):
        size = array.shape
        wide = cp.zeros((size[0] + 1, size[1] + 2, size[2] + 3, size[3] + 4), array.dtype)
        inside = wide[1:, 1:-1, 2:-1, 2:-2]
        inside[...] = array
        operands.stored[i] = inside
    for found in _every(problem, "omega:8:3:6", precision, aligned=False)[-2:]:
        _check(problem, found, operands=operands)
    if precision != "bf16":
        empty = cp.zeros((0, 10, 14, 36), DTYPES[precision])
        dw = conv_backward_filter(
            empty, empty[..., :20], (20, 3, 3, 36), padding=1, precision=precision
        )
        assert dw.shape == problem.w_shape
        assert not bool(dw.any())
