"""Random problems over the whole argument space for GPUs: planned, and run from sources on the CPU.

    python -m tests.gpu.random_plans --seed 1 --count 20000 --run 200 --seconds 600

draws them (the shapes and directions of support/drawn.py, more channels for some; device,
precision, dtype of the result, alignment and often an algorithm beside; of a share, ``--likely``,
layers as every_kernel/likely.py has them), plans each, runs the sources of every ``--run``-th part,
and of another plan that can run it, on the CPU between zones of NaN (gpu/hosted.py), of arrays
without gaps and of such as lie anyhow (every_kernel/views.py), and appends a row with the counts of
planned and run ones, by kind of plan and by family, to experiments/results/random_plans.jsonl. A
problem of up to three dimensions has a
plan where no algorithm is named and the precision is the arrays' own; all else that is not served
is refused by a sentence. Results are within their proven bound of FP64 ones, have the same bits
wherever arrays lie and, NaN and infinity apart, are finite; where a plan says that it computes
images as each alone, they have the bits that they have alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.gpu import hosted
from tests.gpu.every_kernel import likely, views
from tests.gpu.every_kernel.likely import DEVICES, OWN
from tests.gpu.every_kernel.views import Place
from tests.gpu.families.depthwise.cases import dtype_of
from tests.gpu.guarded import UNIT, limits
from tests.random_problems import versions
from tests.support.drawn import draw, geometry_empty
from winolab.algorithm import Problem, parse_algorithm
from winolab.arguments.epilogue import Epilogue
from winolab.device import datasheet
from winolab.gpu.params import MATMUL
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.recast import images as cut
from winolab.gpu.planner.recast.folded import FoldedPlan
from winolab.gpu.planner.recast.pieces import planned
from winolab.gpu.planner.recast.stacked import StackedPlan
from winolab.gpu.planner.request import DTYPES, PRECISIONS, Plan, Request
from winolab.problem import shapes
from winolab.ref.algorithms import convolution

ROWS = Path(__file__).resolve().parents[2] / "experiments/results/random_plans.jsonl"
MOST = 3e6  # multiply-adds of what is run


class Wrong(AssertionError):
    """A plan or a result that cannot be."""


@dataclass(frozen=True)
class Drawn:
    """What a problem is, by its seed and number."""

    request: Request
    free: bool  # nothing is named but shapes, direction and the arrays' dtype, nothing limited


def drawn(seed: str, number: int) -> Drawn | None:
    """Problem ``number`` of ``seed``; None of what has nothing to compute."""
    case, rng = draw(seed, number), Random(f"{seed} {number} plan")
    g = case.geometry
    if geometry_empty(g) or case.refusal:
        return None
    times = rng.choice([1, 1, 2, 4, 8, 16])
    channels, out_channels = (times * v for v in (g.channels, g.out_channels))
    groups = g.groups * rng.choice([1, 1, 1, times])
    problem = Problem(
        g.batch, channels, out_channels, tuple(g.input), tuple(g.filter), tuple(g.stride),
        tuple((low, high) for low, high in g.padding), tuple(g.dilation), groups,
    )  # fmt: skip
    named = case.algorithm if rng.random() < 0.4 else None
    precision = rng.choice(OWN) if rng.random() < 0.8 else rng.choice(list(PRECISIONS))
    request = Request(
        problem, case.direction, datasheet(rng.choice(DEVICES)),
        parse_algorithm(named) if named else None, precision,
        aligned=rng.random() < 0.5, out_dtype=rng.choice([None, None, "float32"]),
        workspace_limit=rng.choice([None, None, None, 0, 1 << 20]),
    )  # fmt: skip
    return Drawn(request, free(request))


def free(request: Request) -> bool:
    """Whether nothing is named but shapes, direction and the arrays' dtype, nothing limited."""
    return not request.named and request.precision in OWN


def of_any_kind(seed: str, number: int, share: float) -> tuple[Drawn | None, bool]:
    """Problem ``number`` of ``seed``, of so large a share a layer of which plans of few others are
    likely, and whether it is one."""
    rng = Random(f"{seed} {number} layer")
    if rng.random() >= share:
        return drawn(seed, number), False
    request = likely.request(rng)
    return Drawn(request, free(request)), True


def plans(one: Drawn) -> list[tuple[Problem, Plan]]:
    """What runs it, several of a dwm; none of what is refused. Raises Wrong for a refusal of what
    has to be served."""
    request = one.request
    try:
        if request.algorithm and request.algorithm.kind == "dwm":
            found = [(part.problem, p) for part, _, p in planned(request)]
        else:
            found = [(request.problem, plan(request))]
    except ValueError as error:
        text = str(error)
        if not text or "\n" in text:
            raise Wrong(f"refused in other than one line: {text!r}") from error
        if one.free and request.problem.ndim <= 3:
            raise Wrong(f"refused: {text}") from error
        return []
    for _, p in found:
        if not (0 < p.predicted < 1e6 and p.workspace >= 0 and p.kernel):
            raise Wrong(f"predicted {p.predicted} s, workspace {p.workspace} B: {p}")
        if request.workspace_limit is not None and p.workspace > request.workspace_limit:
            raise Wrong(f"workspace {p.workspace} B beyond the limit: {p}")
    return found


def another(request: Request, rng: Random) -> Plan | None:
    """One of all plans that can run it, of a kind that is drawn first, half of the time of those
    that compute another problem in its place: few are the fastest of any problem that is as small.
    None of a dwm, and where none keeps to the limit."""
    if request.algorithm and request.algorithm.kind == "dwm":
        return None
    kinds: dict[tuple[str, ...], list[Plan]] = {}
    recast = rng.random() < 0.5 and list(likely.recast(request))
    limit = request.workspace_limit
    for p in recast or candidates(request).plans:
        if limit is None or p.workspace <= limit:
            *_, last = likely.steps(p)
            kind = (*map(type, likely.steps(p)), last.kernel, p.precision)
            kind = *map(str, kind), str(getattr(p.config, "kind", ""))
            kinds.setdefault(kind, []).append(p)
    return rng.choice(kinds[rng.choice(sorted(kinds))]) if kinds else None


def proven(p: Plan) -> float:
    """A bound of every output's error, the rounding of its dtype apart: its kernels', and of sums
    of products of every tap, of [-1, 1), what n additions in FP32 err (Higham 2002, 4.2)."""
    every = list(likely.steps(p))
    limit, _, _ = limits(every[-1])
    for folded in (q for q in every if isinstance(q, FoldedPlan)):
        taps = math.prod(folded.problem.filter)
        products = folded.products.problem
        channels = products.in_channels if p.direction == "forward" else products.out_channels
        growth = taps * 2.0**-24 / (1 - taps * 2.0**-24)
        limit = taps * (limit + growth * (channels + limit))
    return limit


def run(
    problem: Problem, p: Plan, rng: np.random.Generator, *, spoilt: bool = False,
    finished: bool = False, aligned: bool = True, **ends: bool | None,
) -> None:  # fmt: skip
    """Run a plan's sources on the CPU: of arrays without gaps, of such as lie anyhow (``aligned``
    and ``ends`` as views.of_plan has them), with ``finished`` of a bias and a residual too, with
    ``spoilt`` with NaN or infinity among the data. Raises Wrong for a result beyond its bound, of
    other bits by where arrays lie, or of a filter that was made ready beforehand, or not finite
    where it has to be."""
    first, second, _ = shapes(p.direction, problem)
    dtype = dtype_of({"fp32": "float32", "fp16": "float16"}.get(p.precision.split("_")[0],
                                                                "bfloat16"))  # fmt: skip
    places = views.of_plan(p, Random(int(rng.integers(1 << 32))), aligned=aligned, **ends)
    drawn = (rng.uniform(-1, 1, s).astype(dtype) for s in (first, second))
    # What lies in one place is equal.
    a, b = (hosted.Guarded.of(v, v_at).array.copy() for v, v_at in zip(drawn, places, strict=False))
    at = tuple(int(rng.integers(n)) for n in a.shape)
    y = hosted.execute(p, a, b, dtype=p.out_dtype).astype(float)
    exact = getattr(convolution, p.direction)(a.astype(float), b.astype(float), problem)
    limit = proven(p)
    off = np.abs(y - exact)
    if not (off <= limit + UNIT[p.out_dtype] * (np.abs(exact) + limit)).all():
        raise Wrong(f"error {np.nanmax(off):.3g}, proven {limit:.3g}: {p}")
    _elsewhere(p, a, b, y, places)
    finished = finished and p.direction == "forward"
    if finished and (more := p.with_epilogue(Epilogue(bias=True, residual=True))):
        kind = dtype_of(p.out_dtype)
        added = [rng.uniform(-1, 1, s).astype(kind) for s in (y.shape[-1:], y.shape)]
        y = hosted.execute(more, a, b, dtype=p.out_dtype, epilogue=added).astype(float)
        due = exact + sum(v.astype(float) for v in added)
        off, most = np.abs(y - due), np.abs(exact) + limit + 2
        if not (off <= limit + (2 * UNIT[p.out_dtype] + 2.0**-22) * most).all():
            raise Wrong(f"error {np.nanmax(off):.3g} behind bias and residual: {p}")
        _elsewhere(more, a, b, y, places, epilogue=added)
    if spoilt:
        a[at] = rng.choice([np.nan, np.inf])
        got = hosted.execute(p, a, b, dtype=p.out_dtype).astype(float)
        kept = ~reached(problem, p, at)
        if not np.isfinite(got[kept]).all():
            raise Wrong(f"{a[at]} at {at} reaches what does not depend on it: {p}")


def in_every_batch(request: Request, p: Plan, rng: np.random.Generator) -> bool:
    """Whether a plan is looked at by which an image is to have the bits that it has alone. Raises
    Wrong where it has others."""
    if p.direction == "backward_filter" or not cut.in_one_launch(p):
        return False
    asked = replace(cut.named(request, p), workspace_limit=None)
    try:
        one, every = (plan(cut.of_images(asked, n)) for n in (1, 3))
    except ValueError:
        return False
    if cut.order(one) != cut.order(every):
        return False
    first, second, _ = shapes(p.direction, every.problem)
    dtype = dtype_of(DTYPES[p.precision])
    a, b = (rng.uniform(-1, 1, s).astype(dtype) for s in (first, second))
    y = hosted.execute(every, a, b, dtype=p.out_dtype)
    for i in range(3):
        alone = hosted.execute(one, a[i : i + 1].copy(), b, dtype=p.out_dtype)
        if not np.array_equal(alone, y[i : i + 1]):
            raise Wrong(f"image {i} of 3 has other bits than alone: {every}")
    a[1] = np.nan
    again = hosted.execute(every, a, b, dtype=p.out_dtype)
    if not np.array_equal(again[::2], y[::2]):
        raise Wrong(f"NaN in an image changes others: {every}")
    return True


def _elsewhere(
    p: Plan, a: np.ndarray, b: np.ndarray, y: np.ndarray, places: Sequence[Place], **how: Any
) -> None:
    """Raise Wrong where the result of arrays in ``places``, or of a filter made ready apart, is
    not ``y``."""
    for apart in (False, True)[: 2 if p.prepared_size else 1]:
        again = hosted.execute(p, a, b, dtype=p.out_dtype, places=places, apart=apart, **how)
        if not ((again := again.astype(float)) == y).all():
            said = f"where arrays lie as {places}" + ", w made ready apart" * apart
            raise Wrong(f"{(again != y).sum()} elements are others {said}: {p}")


def reached(problem: Problem, p: Plan, at: tuple[int, ...]) -> np.ndarray:
    """Outputs that NaN or infinity at one place of the first operand may reach: those that depend
    on it; of transforms those of its image, since a tile has them all; of a gradient those of its
    channel, since zeros stand beyond the borders (``winolab.conv_backward_filter`` says so); where
    products merge groups, forward and back, those of other groups."""
    first, second, out = shapes(p.direction, problem)
    gradient = p.direction == "backward_filter"
    *_, last = likely.steps(p)
    several = p.precision != "fp32" or getattr(last, "merged", 1) > 1
    merged = problem.groups > 1 and several and not gradient
    if any(
        isinstance(q, StackedPlan) for q in likely.steps(p)
    ):  # phases as channels: taps of zeros fill the filter up
        taps = tuple(-(-r // s) * s for r, s in zip(problem.filter, problem.stride, strict=True))
        more = [(lo, hi + t - r) for (lo, hi), t, r in zip(problem.padding, taps, problem.filter,
                                                           strict=True)]  # fmt: skip
        problem = replace(problem, filter=taps, padding=tuple(more))
        first, second, out = shapes(p.direction, problem)
    if not merged and not gradient and all(t.alpha == 1 for t in p.tiles):
        mark = np.zeros(first)
        mark[at] = 1
        return getattr(convolution, p.direction)(mark, np.ones(second), problem) > 0
    found = np.zeros(out, bool)
    found[(..., at[-1] % (problem.in_channels // problem.groups)) if gradient else at[0]] = True
    return found


def names(p: Plan) -> Iterator[str]:
    """What a plan is counted as: its family, and what another plan is computed by."""
    yield likely.family(p)
    yield from (type(q).__name__ for q in likely.steps(p) if isinstance(q, likely.RECAST))


def main(arguments: list[str] | None = None) -> int:
    """The command. 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.random_plans", description=__doc__)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--run", type=int, default=0, help="run every so many, 0: none")
    parser.add_argument("--likely", type=float, default=0.4, help="share of likely layers")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop drawing then")
    parser.add_argument("--rows", type=Path, default=ROWS)
    given = parser.parse_args(arguments)
    start, wrong, ran, done, kernels = time.perf_counter(), 0, 0, 0, Counter()
    layers, met, computed = 0, Counter(), Counter()
    for number in range(given.first, given.first + given.count):
        if time.perf_counter() - start > given.seconds:
            break
        done += 1
        one = None
        try:
            one, layer = of_any_kind(given.seed, number, given.likely)
            layers += layer
            if not one:
                kernels["nothing to compute"] += 1
                continue
            found = plans(one)
            kernels.update(p.kernel for _, p in found)
            for _, p in found:
                met.update(names(p))
            kernels["refused"] += not found
            small = found and found[0][0].macs <= MOST
            if given.run and number % given.run == 0 and small:
                spoilt = number // given.run % 3 == 0
                problem, p = found[0]
                other = another(one.request, Random(f"{given.seed} {number} other"))
                for each in (p, p.in_planes, other):
                    if each and MATMUL not in each.shared():  # a library's, on a GPU
                        how = {"spoilt": spoilt, "aligned": one.request.aligned}
                        how |= {"side": one.request.aligned_rows}
                        how |= {"ends": one.request.aligned_outputs}
                        how["finished"] = number // given.run % 4 == 1
                        run(problem, each, np.random.default_rng(number), **how)
                        computed.update(names(each))
                        kernels["in every batch"] += in_every_batch(
                            one.request, each, np.random.default_rng(number)
                        )
                ran += 1
        except Exception:
            wrong += 1
            print(f"{traceback.format_exc()}\n  {one and one.request}")
            again = f"--seed {given.seed} --first {number} --count 1 --run {given.run}"
            again += f" --likely {given.likely}"
            print(f"  python -m tests.gpu.random_plans {again}\n", flush=True)
    seconds = round(time.perf_counter() - start, 1)
    row = {"seed": given.seed, "first": given.first, "count": done, "wrong": wrong, "run": ran,
           "in_every_batch": kernels.pop("in every batch", 0),
           "refused": kernels.pop("refused", 0), "empty": kernels.pop("nothing to compute", 0),
           "likely": layers, "kernels": len(kernels), "seconds": seconds,
           "plans": dict(met.most_common()), "executed": dict(computed.most_common())}  # fmt: skip
    if done:
        with given.rows.open("a") as file:
            file.write(json.dumps(row | versions()) + "\n")
    for title, counts in (("planned", met), ("run", computed)):
        print(f"{title}: {', '.join(f'{n} {name}' for name, n in counts.most_common())}")
    print(f"{done} problems of seed {given.seed}, {ran} run, {wrong} wrong, {seconds} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
