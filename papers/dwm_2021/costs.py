"""DWM 2021, Tables 3, 4 and 8: multiplications of single layers and of networks.

The tables' numbers did not survive; each claim of the prose is a row beside what comes out here.
As the paper does, multiplications by 0 and powers of two in transforms are not counted (its
section 5.3), and additions neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np

from experiments.harness.counted import Count, cells, claim, row
from experiments.harness.facts import facts
from experiments.harness.jobs import Row
from experiments.harness.tables import Table
from experiments.harness.verdicts import above, at_least, below, equal, rounds_to
from papers.dwm_2021.networks import Network, networks
from winolab.algorithm import Problem, Tile, dwm
from winolab.ref.algebra.program import is_power_of_two
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.cost.count import cost

PAPER = "dwm_2021"
KERNELS = {2: (3, 5, 7, 9, 11), 3: (3, 5, 7, 9)}
POINTS = "wincnn"
CLAIMS = facts(PAPER)["claims"]
PHASES = "phases, four outputs"
MOST = 0.5  # the part that "most" means at the least
UNIT = 0.01  # of the last digit of a speedup


def dense(matrix: Sequence[Sequence[Fraction]]) -> int:
    """Multiplications of a matrix-vector product, but by 0 and powers of two."""
    return sum(bool(v) and not is_power_of_two(v) for r in matrix for v in r)


def winograd_multiplications(problem: Problem) -> int:
    """Multiplications of F(2, r) in every dimension: products, and transforms as dense matrices."""
    return sum(winograd_parts(problem))


def transforming(problem: Problem) -> float:
    """The part of them that is of the transforms."""
    products, transformed = winograd_parts(problem)
    return transformed / (products + transformed)


def winograd_parts(problem: Problem) -> tuple[int, int]:
    """Those of the products and of the transforms."""
    tiles = [Tile(2, r) if r > 1 else DIRECT for r in problem.filter]
    count = problem.batch * math.prod(
        -(-o // t.n) for o, t in zip(problem.output, tiles, strict=True)
    )
    alphas = [t.alpha for t in tiles]
    n, r = [t.n for t in tiles], list(problem.filter)
    matrices = [transforms(t.n, t.r, POINTS) for t in tiles]
    c, k = problem.in_channels, problem.out_channels
    data = _nested([dense(m.BT) for m in matrices], alphas, alphas)
    filters = _nested([dense(m.G) for m in matrices], r, alphas)
    inverse = _nested([dense(m.AT) for m in matrices], alphas, n)
    products = count * c * k * math.prod(alphas)
    return products, count * c * data + c * k * filters + count * k * inverse


def _nested(counts: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> int:
    return sum(
        count * math.prod(outputs[:d]) * math.prod(inputs[d + 1 :])
        for d, count in enumerate(counts)
    )


def dwm_multiplications(problem: Problem) -> int:
    """Multiplications of DWM's own pieces and tiles, whose transforms only shift."""
    return decomposition(problem, dwm()).multiplications()


def layer(ndim: int, kernel: int, stride: int, outputs: int, channels: int) -> Problem:
    """One image, as many filters as channels, no padding."""
    size = (outputs - 1) * stride + kernel
    return Problem.of(
        (1, *(size,) * ndim, channels), (channels, *(kernel,) * ndim, channels), stride=stride
    )


def phases_saved(ndim: int, kernel: int, stride: int) -> float:
    """Direct's multiplications over those of a stride's phases, each whole and by tiles of four
    outputs; their transforms, which DWM's pieces have for nothing, are left out."""
    problem = layer(ndim, kernel, stride, 4, 1)
    return problem.macs / decomposition(problem, dwm(kernel, 4)).multiplications()


def _speedups(ndim: int) -> list[Row]:
    """Direct's multiplications over those of Winograd and DWM, and the claims on them."""
    rows, dwms = [], {}
    for stride in (1, 2):
        for kernel in KERNELS[ndim]:
            where = f"{ndim}-D, {kernel} taps, stride {stride}"
            one = layer(ndim, kernel, stride, 2, 1)
            dwms[stride, kernel] = one.macs / dwm_multiplications(one)
            rows.append(row(where, "DWM", dwms[stride, kernel]))
            if stride > 1:
                rows.append(row(where, PHASES, phases_saved(ndim, kernel, stride)))
            if stride == 1:
                single = winograd_multiplications(one)
                rows.append(row(where, "Winograd, one tile", one.macs / single))
                for setting in facts(PAPER)["settings"]["rows"]:
                    whole = layer(ndim, kernel, 1, setting["spatial"], setting["channels"])
                    rows.append(
                        row(
                            where,
                            f"Winograd, {setting['spatial']}, {setting['channels']} channels",
                            whole.macs / winograd_multiplications(whole),
                        )
                    )
    return rows + _speedup_claims(ndim, rows, dwms)


def _speedup_claims(ndim: int, rows: list[Row], dwms: dict[tuple[int, int], float]) -> list[Row]:
    ones = [dwms[1, k] for k in KERNELS[ndim]]
    text = f"about {ndim}× in {ndim}-D, to the digit: mean over kernels, stride 1"
    claims = [claim(text, ndim, float(np.mean(ones)), rounds_to(ndim, 1))]
    low, high = CLAIMS["speedup"]
    if ndim == 2:
        claims.append(
            claim("least speedup", low, min(dwms.values()), rounds_to(low, UNIT),
                  "3 taps, stride 2: (6/5)²")
        )  # fmt: skip
    else:
        claims.append(
            claim("greatest speedup", high, max(dwms.values()), rounds_to(high, UNIT),
                  "3 and 9 taps, stride 1: (6/4)³ = 3.375")
        )  # fmt: skip
    low, high = CLAIMS["reduction_large"]
    for kernel in KERNELS[ndim][1:]:
        text = f"large kernels multiply less by {low} to {high} %: {kernel} taps, in %"
        # In whole percents, as the range is printed.
        accepted = rounds_to(low, 1)[0], rounds_to(high, 1)[1]
        claims.append(claim(text, low, 100 * (1 - 1 / dwms[1, kernel]), accepted))
    low, high = CLAIMS["speedup_stride2"]
    for kernel in KERNELS[ndim]:
        note = "not for 3 taps, by the paper's own formula" if kernel == 3 else ""
        text = f"stride 2 by {low} to {high} times: {kernel} taps"
        claims.append(claim(text, low, dwms[2, kernel], (low, high), note))
    winograds = [r["ours"] for r in rows if r["column"] == "Winograd, one tile"]
    text = "Winograd and DWM cost the same for 3 taps: ratio"
    claims.append(claim(text, 1, winograds[0] / ones[0], equal(1)))
    worst = max(w / o for w, o in zip(winograds[1:], ones[1:], strict=True))
    claims.append(claim("DWM costs less than Winograd above 3 taps, one tile", 1, worst, below(1)))
    low, high = rounds_to(ndim, 1)
    steady = sum(low <= saved <= high for saved in ones) / len(ones)
    text = f"DWM's saving is steady: part of the kernels where it rounds to {ndim}"
    claims.append(claim(text, 1, steady, equal(1)))
    growth = min(a / b for a, b in pairwise(winograds))
    text = "Winograd multiplies more, relatively, with every kernel, one tile: least growth"
    claims.append(claim(text, 1, growth, above(1)))
    kernels = KERNELS[ndim][1:]
    shares = [transforming(layer(ndim, kernel, 1, 2, 1)) for kernel in kernels]
    text = "most of Winograd's multiplications are its transforms', one tile: least part"
    claims.append(claim(text, MOST, min(shares), above(MOST)))
    shares = [transforming(layer(ndim, kernel, 1, setting["spatial"], setting["channels"]))
              for kernel in kernels for setting in facts(PAPER)["settings"]["rows"]]  # fmt: skip
    text = "the same in a layer, where channels and filters share them: least part"
    claims.append(claim(text, MOST, min(shares), above(MOST)))
    claims += _gradients(ndim)
    amortised = max(
        r["ours"] / dwms[1, int(r["where"].split()[1])]
        for r in rows
        if r["column"].endswith("channels") and " 3 taps" not in r["where"]
    )
    claims.append(
        claim(
            "the same in a layer, transforms shared by its channels and filters",
            1,
            amortised,
            below(1),
            "large Winograd tiles save more products than their transforms cost",
        )
    )
    return claims


def _gradients(ndim: int) -> list[Row]:
    """Whether gradients save "by the same scale" (section 4.4) in layers that keep their size."""
    claims, setting = [], facts(PAPER)["settings"]["rows"][0]
    problems = [
        Problem.of(
            (1, *(setting["spatial"],) * ndim, 1), (1, *(kernel,) * ndim, 1),
            stride=stride, padding=kernel // 2,
        )
        for kernel in KERNELS[ndim] for stride in (1, 2)
    ]  # fmt: skip
    for direction, name in (("backward_data", "data"), ("backward_filter", "filter")):
        least = min(
            cost(problem, dwm()).products / cost(problem, dwm(), direction).products
            for problem in problems
        )
        text = f"the {name}'s gradient saves as the forward pass does, or more: least ratio"
        claims.append(claim(text, 1, least, at_least(1)))
    return claims


def table3() -> list[Row]:
    return _speedups(2)


def table4() -> list[Row]:
    more = min(
        saved[3] / saved[2]
        for kernel in KERNELS[3]
        for stride in (1, 2)
        if (saved := {d: _saved(d, kernel, stride) for d in (2, 3)})
    )
    text = "the more dimensions, the less DWM multiplies: least ratio of savings, 3-D over 2-D"
    return [*_speedups(3), claim(text, 1, more, above(1))]


def _saved(ndim: int, kernel: int, stride: int) -> float:
    """Direct's multiplications over DWM's, of a block of two outputs a dimension."""
    problem = layer(ndim, kernel, stride, 2, 1)
    return problem.macs / dwm_multiplications(problem)


def table8() -> list[Row]:
    """Whole networks: 1e9 multiplications, and speedups under the paper's four readings."""
    rows = []
    speedups = {}
    for network in networks():
        base = sum(p.macs for p in network.layers)
        rows.append(_published(network, base / 1e9))
        counted = _network(network)
        speedups[network.name] = {name: base / total for name, total in counted.items()}
        rows += [row(network.name, f"{n}, speedup", v) for n, v in speedups[network.name].items()]
    for name in ("SPyNet", "V2V"):
        best = max(speedups[name]["Winograd"], speedups[name]["Conv + Winograd"])
        over = speedups[name]["DWM"] / best
        rows.append(claim(f"{name}: DWM saves more than both", 1, over, above(1)))
    taps = [p.filter for n in networks() if n.name == "SlowFast-R50" for p in n.layers
            if p.unit and max(p.filter) > 1]  # fmt: skip
    text = "SlowFast-R50: all layers of stride 1 and several taps are 3×3: part of them"
    rows.append(
        claim(
            text,
            1,
            taps.count((1, 3, 3)) / len(taps),
            equal(1),
            "the paper gives no Winograd there; 3×1×1 is of stride 1, too",
        )
    )
    for name in ("VGG-16", "C3D"):
        same = speedups[name]["Conv + Winograd"] / speedups[name]["DWM"]
        text = f"{name}, all of 3 taps: Conv + Winograd is as good"
        rows.append(claim(text, 1, same, equal(1)))
    return rows


def _published(network: Network, gflop: float) -> Row:
    """1e9 multiply-adds of a network: judged where DWM's own text has them."""
    printed = CLAIMS["gflops"].get(network.name)
    note = network.source
    if printed is None and network.published:
        note = f"{note}; published there: {network.published}"
    more = {} if printed is None else {"accepted": rounds_to(printed, 0.1), "claim": True}
    return row(network.name, "Conv, 1e9", gflop, printed, note=note, **more)


def _network(network: Network) -> dict[str, int]:
    """Multiplications; a layer's stride decides whether Winograd serves it, as in the paper."""
    totals: dict[str, int] = dict.fromkeys(("Winograd", "Conv + Winograd", "DWM"), 0)
    for problem in network.layers:
        winograd = problem.macs
        if problem.unit and max(problem.filter) > 1:
            winograd = winograd_multiplications(problem)
        totals["Winograd"] += winograd
        three = set(problem.filter) == {3}
        totals["Conv + Winograd"] += winograd if three else problem.macs
        totals["DWM"] += dwm_multiplications(problem)
    return totals


def counted(name: str, title: str, function, tolerance: str = "") -> Table:
    return Table(
        PAPER,
        name,
        title,
        lambda full: [Count(PAPER, name, function)],
        partial(cells, unit=UNIT),
        tolerance or "a claim of the paper's prose holds; the table's numbers did not survive",
    )


TABLE3 = counted("table3", "Multiplications saved in 2-D", table3)
TABLE4 = counted("table4", "Multiplications saved in 3-D", table4)
TABLE8 = counted(
    "table8",
    "Multiplications of whole networks",
    table8,
    "a claim of the prose holds; its multiply-adds round to the digit that it prints",
)
