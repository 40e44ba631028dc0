"""The plans that kept rows timed, made from their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from experiments.calibrate.rows import Timed
from winolab.algorithm import Algorithm, Tile, gamma, parse_algorithm
from winolab.arguments.tolerance import Tolerance
from winolab.arguments.variants import FUSED, FUSED_FP16
from winolab.bench.contenders import digest, unnamed
from winolab.gpu.families import scale
from winolab.gpu.families.depthwise.plan import DepthwisePlan
from winolab.gpu.families.direct import plan as direct
from winolab.gpu.families.gamma.config import PARTS
from winolab.gpu.families.gamma_ffma import config as ffma
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.families.gamma_mma import config as mma
from winolab.gpu.families.gamma_mma import plan as gamma_mma
from winolab.gpu.families.gamma_wgmma import config as wgmma
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan
from winolab.gpu.families.im2col import plan as im2col
from winolab.gpu.families.implicit_gemm.plan import ImplicitGemmPlan
from winolab.gpu.families.patches import plan as patches
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.families.skinny import plan as skinny
from winolab.gpu.families.wgrad import REDUCE_THREADS, parts_of
from winolab.gpu.families.wgrad_direct.chunks import Cost, blocks_of_row, ways
from winolab.gpu.families.wgrad_direct.plan import WgradColumnsPlan
from winolab.gpu.families.wgrad_grouped.plan import WgradGroupedPlan
from winolab.gpu.families.wgrad_mma import config as fused
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan, flat_plans
from winolab.gpu.families.wgrad_mma.tiling import first
from winolab.gpu.families.wgrad_thin.plan import WgradThinPlan
from winolab.gpu.families.wgrad_winograd.plan import WgradWinogradPlan
from winolab.gpu.families.wgrad_winograd.tiling import rounded
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.error.metrics import ADMISSIBLE

HEADER = 16 << 10  # bytes by which a workspace may differ: what is about data grew since
# Kernels that transform nothing, by their names.
UNTRANSFORMED = "thin", "patches", "skinny", "depthwise", "direct", "grouped", "implicit GEMM"
CUBLASLT = "cuBLASLt"
# Families whose kernels have a name that is no tile's, which is the family's.
BY_NAME = {name: name.lower().replace(" ", "_") for name in (*UNTRANSFORMED, CUBLASLT)}
NUMBER = re.compile(r"(\w+)=(\d+)")


@cache
def plan_of(row: Timed) -> Any:
    """The plan of a row; None where no kernel of that name runs the layer any more."""
    request = _request(row.layer, row.direction, row.group, row.device, row.products)
    if row.variant.startswith("mma.sync"):
        return _mma(request, row)
    kernel = re.fullmatch(r"Γ(\d+)\((\d+),(\d+)\)", row.kernel)
    if kernel and int(kernel[1]) > 1:
        tile = Tile(int(kernel[2]), int(kernel[3]))
        return (_ffma if row.products == "fp32" else _wgmma)(request, tile, row.variant)
    named = row.kernel, row.variant
    family = BY_NAME.get(row.kernel, "")
    offers = [_offered(request, each, family) for each in _algorithms(row)]
    plans = [p for offered in offers for p in offered.get(named, ())]
    plans = plans or [p for made in _BY_CONFIG for p in made(request, row)]
    if plans and isinstance(plans[0], WgradColumnsPlan):
        return _sharing(plans[0], row.workspace)
    if plans and (cut := _CUT.get(type(plans[0]))):
        return cut(plans[0], row)
    if row.workspace is not None:
        plans = [p for p in plans if takes(p, row.workspace)]
    return plans[0] if plans else None


def cut_to(p: Plan, workspace: int) -> Plan:
    """The plan in as many segments as take a workspace, where a correlation's sum may be cut."""
    if isinstance(p, ImplicitGemmPlan) and not p.gradient:
        return _in_segments(p, workspace)
    return p


def _in_segments(p: ImplicitGemmPlan, workspace: int) -> ImplicitGemmPlan:
    """The plan in as many segments of its sum as take a workspace."""
    return replace(p, segments=max(1, (workspace - sum(p.filled)) // (4 * p.result.weights)))


def takes(p: Plan, workspace: int) -> bool:
    """Whether a row's workspace is a plan's, or what it was until 2026-11-30 (docs/notes/113), or
    of as many suspects as there was room for then (docs/notes/126)."""
    found = [p.workspace]
    split = p.primary if isinstance(p, PlanWithFallback) else p
    if (more := scale.noted(getattr(split, "header", 0)) - scale.MOST_ROOM) > 0:
        found.append(p.workspace - more * scale.SUSPECT)
    if isinstance(split, WgradWinogradPlan) and split.checks_accuracy:
        pairs = (split.padded[0] // 64) * (split.padded[1] // 64)
        before = split.regions["dy_losses"] + rounded(8 * split.slice * pairs)
        behind = p.header + p.fallback.workspace if isinstance(p, PlanWithFallback) else 0
        found.append(max(before, behind))
    return any(abs(each - workspace) <= HEADER for each in found)


def _sharing(p: WgradColumnsPlan, workspace: int | None) -> WgradColumnsPlan | None:
    """The plan whose blocks share as much work as takes such a workspace, whatever is picked now;
    None where a row does not say how much."""
    if workspace is None:
        return None
    rest, of_row = p.workspace - p.shares.workspace, blocks_of_row(p.gradient, p.config)
    cost = Cost(1e-6, 1e-5, 4 * p.config.n * p.config.bi * p.config.bo)
    every = [s for cached in (False, True) for s in ways(p.columns, of_row, p.device, cost, cached)]
    near = min(every, key=lambda s: abs(rest + s.workspace - workspace))
    if abs(rest + near.workspace - workspace) > HEADER:
        return None
    return replace(p, shares=near)


def _walked(p: DepthwisePlan, row: Timed) -> DepthwisePlan:
    """The plan with a row's walks, blocks and shares of a sum."""
    share = 4 * p.shape.channels * p.shape.taps
    return replace(p, **dict(row.cut), shares=max(1, (row.workspace or 0) // share))


def _segmented(p: ImplicitGemmPlan, row: Timed) -> ImplicitGemmPlan | None:
    """The plan with as many segments of a sum as a row says, or as take its workspace; None where
    threads share what one added up when rows of other sources were measured (docs/notes/088).
    """
    segments = dict(row.cut).get("segments")
    found = replace(p, segments=segments) if segments else _in_segments(p, row.workspace or 0)
    blocks = -(-p.result.weights // REDUCE_THREADS)
    shared = parts_of(found.segments, blocks, p.device.multiprocessors) > 1
    there = row.workspace in (None, found.workspace)
    return found if there and not (shared and digest(found) != row.source) else None


def _fused(request: Request, row: Timed) -> Iterator[WgradMmaPlan]:
    """The plans of a config of fused Ω that is not offered: with a policy off or on. Transforms
    whose rows are computed one by one have more instructions, which the model does not count."""
    if "paired=0" in row.variant:
        return
    found = re.fullmatch(r"(\d+)x(\d+)x16 stages=\d+((?: [a-z]+\d?=\d+)*)", row.variant)
    if not found or row.direction != "backward_filter" or row.products not in ("fp16", "bf16"):
        return
    config = fused.Config(int(found[1]), int(found[2]), **_numbers(row.variant.split()[1:]))
    for algorithm in _algorithms(row):
        if algorithm and algorithm.variant in (FUSED, FUSED_FP16):
            asked = replace(request, algorithm=algorithm, config=config)
            yield from (p for p in flat_plans(asked) if str(p.config) == row.variant)


def _direct(request: Request, row: Timed) -> Iterator[Plan]:
    """The plan of a config of direct products that is not offered, or not for such a layer."""
    if row.kernel != "Γ1(1,1)" or row.products == "fp32":
        return
    numbers = _numbers(row.variant.split()[2:])
    if found := re.match(r"(\d+)x(\d+) positions, stages=(\d+)", row.variant):
        numbers.pop("stages", None)
        config = im2col.Config(*map(int, found.groups()), **numbers)
        yield from im2col.plans(replace(request, config=config))
    found = re.match(r"(\d+)x(\d+)x64 stages=(\d+)\+(\d+)", row.variant)
    if found and row.products != "fp32_split":
        config = direct.Config(*map(int, found.groups()), **numbers)
        yield from direct.plans(replace(request, config=config))


def _patches(request: Request, row: Timed) -> Iterator[Plan]:
    """The plan of a config of patches of which another shape is predicted to be faster."""
    if row.kernel == patches.PatchesPlan.kernel:
        shape = re.fullmatch(r"(\d+)x(\d+) positions (\d+) channels tiles=(\d+)", row.variant)
        assert shape
        config = patches.Config(*map(int, shape.groups()))
        yield from patches.plans(replace(request, config=config))


def _skinny(request: Request, row: Timed) -> Iterator[Plan]:
    """The plan of a config of few positions of which other shapes are predicted to be faster."""
    if row.kernel == skinny.SkinnyPlan.kernel:
        shape = re.fullmatch(r"(\d+)x(\d+) vector=(\d+) lanes=(\d+)x(\d+)", row.variant)
        assert shape
        config = skinny.Config(*map(int, shape.groups()))
        yield from _without_errors(skinny.plans, replace(request, config=config))


_BY_CONFIG = _fused, _direct, _patches, _skinny


def _flat(p: WgradMmaPlan, row: Timed) -> WgradMmaPlan:
    """The plan with as many segments as take a row's workspace."""
    buckets = (row.workspace or 0) // (4 * p.gradient.weights)
    segments = buckets + first(p.out_dtype) if buckets else 1
    return replace(p, segments=segments, workspace=row.workspace or 0)


def _shared(p: WgradThinPlan | WgradGroupedPlan, row: Timed) -> WgradThinPlan | WgradGroupedPlan:
    """The plan with as many shares of the sum as take a row's workspace."""
    return replace(p, shares=max(1, (row.workspace or 0) // (4 * p.gradient.weights)))


_CUT: dict[type, Callable[[Any, Timed], Any]] = {
    DepthwisePlan: _walked,
    ImplicitGemmPlan: _segmented,
    WgradMmaPlan: _flat,
    WgradThinPlan: _shared,
    WgradGroupedPlan: _shared,
}


@cache
def _request(layer: Any, direction: str, group: str, device: Any, products: str) -> Request:
    request = unnamed(direction, layer.problem, group, device)
    unit = "fp32" if products == "fp32" else products
    return replace(request, precision=unit)


def _algorithms(row: Timed) -> Iterator[Algorithm | None]:
    """What names a row's kernel; None where it runs filters that its tile does not divide."""
    if row.kernel == CUBLASLT:
        yield parse_algorithm("direct;variant=cublaslt")
    elif row.kernel in UNTRANSFORMED or "(1,1)" in row.kernel:
        yield parse_algorithm("direct")
    elif found := re.fullmatch(r"F\((\d+)×(\d+),(\d+)×(\d+)\)", row.kernel):
        yield parse_algorithm("winograd:{}x{}:{}x{}".format(*found.groups()))
    elif found := re.fullmatch(r"Ω(\d+)\((\d+),(\d+)\)", row.kernel):
        named = int(found[1]) == int(found[2]) + int(found[3]) - 1
        if named and row.layer.problem.filter[-1] % int(found[2]) == 0:
            text = "omega:{}:{}:{}".format(*found.groups())
            yield parse_algorithm(text)
            variant = FUSED_FP16 if "sums=16" in row.variant else FUSED
            yield parse_algorithm(f"{text};variant={variant}")
        yield None


@cache
def _offered(
    request: Request, algorithm: Algorithm | None, name: str
) -> dict[tuple[str, str], list[Plan]]:
    """What families with few block shapes have, by kernel and config, in 16 bits too what errs as
    much as FP32's may: those of a kernel's ``name``, or "" for all whose kernels have tiles'."""
    tolerance = None if algorithm else Tolerance("direct", ADMISSIBLE)
    asked = replace(request, algorithm=algorithm, tolerance=tolerance)
    found: dict[tuple[str, str], list[Plan]] = {}
    for family in FAMILIES:
        serves = asked.direction in family.directions and asked.precision in family.precisions
        own = family.name.split(".")[0].removeprefix("wgrad_")
        meant = own == name if name else own == "direct" or own not in BY_NAME.values()
        if serves and meant and not family.name.startswith("gamma"):
            for p in _without_errors(family.plans, asked):
                found.setdefault((p.kernel, str(p.config)), []).append(p)
    return found


def _without_errors(plans: Any, request: Request) -> list[Plan]:
    try:
        return list(plans(request))
    except ValueError:
        return []


def _numbers(words: Iterable[str]) -> dict[str, int]:
    return {m[1]: int(m[2]) for word in words if (m := NUMBER.fullmatch(word))}


def _wgmma(request: Request, tile: Tile, text: str) -> Any:
    numbers = _numbers(text.split())
    if len(numbers) < len(text.split()) or "xvec" in numbers or "words" in numbers:
        return None  # what there is no more
    config = wgmma.Config(**{"run": 4, **numbers})
    c = Correlation.of(request.problem, request.direction)
    bare = tile.alpha == 8 and config.share == 4 and not (config.u_ring or config.u_ahead)
    parts = PARTS[request.precision]
    pair = tile.alpha == 6 and wgmma.is_far(tile, c, parts, request.device)
    if (bare and request.precision == "fp32_split") or (config.multicast > 1 and not pair):
        return None  # not offered any more
    what = request.direction, request.problem, c, tile, request.points, request.precision
    return GammaWgmmaPlan(*what, request.stored, config, request.device)


def _mma(request: Request, row: Timed) -> Any:
    _, states, *words = row.variant.split()
    config = mma.Config(int(states), **_numbers(words))
    asked = replace(request, algorithm=gamma(8, 6, 3), config=config)
    return next(iter(gamma_mma.plans(asked)), None)


def _ffma(request: Request, tile: Tile, text: str) -> Any:
    block, *words = text.split()
    stages = re.fullmatch(r"stages=(\d+)\+(\d+)", words[0]) if words else None
    numbers = _numbers(words[1:])
    if not stages or len(numbers) < len(words) - 1:
        return None
    bm, bt, kc = map(int, block.split("x"))
    base = next((v for v in ffma.CONFIGS[tile.alpha] if v.bt == bt), None)
    if base is None or base.kc != kc or "finishers" in numbers:  # which kernels had once
        return None
    numbers |= {"u_stages": int(stages[1]), "v_stages": int(stages[2])}
    load_warp = bool(numbers.pop("load_warp", 0))
    config = replace(base, bm=bm, **numbers, load_warp=load_warp)
    if not config.served(tile.alpha):
        return None
    c = Correlation.of(request.problem, request.direction)
    return gamma_ffma._plan(request, c, tile, config)
