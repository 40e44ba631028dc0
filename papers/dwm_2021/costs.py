"""DWM 2021, Tables 3, 4, 8 and 14 and equation 18: multiplications, memory, the weight update.

The tables' numbers did not survive; each claim of the prose is a row beside what comes out here.
As the paper does, multiplications by 0 and powers of two in transforms are not counted (its
section 5.3), and additions neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from experiments.harness.counted import Count, cells, claim, row
from experiments.harness.facts import facts
from experiments.harness.jobs import Row
from experiments.harness.tables import Table
from experiments.harness.verdicts import above, below, equal, rounds_to
from papers.dwm_2021.networks import Network, networks
from winolab.algorithm import Problem, Tile, dwm
from winolab.ref.algebra.program import is_power_of_two
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.cost.complexity import expansion
from winolab.ref.cost.count import cost

PAPER = "dwm_2021"
KERNELS = {2: (3, 5, 7, 9, 11), 3: (3, 5, 7, 9)}
POINTS = "wincnn"
CLAIMS = facts(PAPER)["claims"]
UNIT = 0.01  # of the last digit of a speedup


def dense(matrix: Sequence[Sequence[Fraction]]) -> int:
    """Multiplications of a matrix-vector product, but by 0 and powers of two."""
    return sum(bool(v) and not is_power_of_two(v) for r in matrix for v in r)


def winograd_multiplications(problem: Problem) -> int:
    """Multiplications of F(2, r) in every dimension: products, and transforms as dense matrices."""
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
    return products + count * c * data + c * k * filters + count * k * inverse


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


def _speedups(ndim: int) -> list[Row]:
    """Direct's multiplications over those of Winograd and DWM, and the claims on them."""
    rows, dwms = [], {}
    for stride in (1, 2):
        for kernel in KERNELS[ndim]:
            where = f"{ndim}-D, {kernel} taps, stride {stride}"
            one = layer(ndim, kernel, stride, 2, 1)
            dwms[stride, kernel] = one.macs / dwm_multiplications(one)
            rows.append(row(where, "DWM", dwms[stride, kernel]))
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


def table3() -> list[Row]:
    return _speedups(2)


def table4() -> list[Row]:
    return _speedups(3)


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


def table14() -> list[Row]:
    """Elements held by DWM, its stages not fused, over those of the tensors alone."""
    rows, ratios = [], {}
    for ndim in (2, 3):
        for setting in facts(PAPER)["settings"]["rows"]:
            for kernel in KERNELS[ndim]:
                spatial, channels = setting["spatial"], setting["channels"]
                x = (1, *(spatial,) * ndim, channels)
                problem = Problem.of(x, (channels, *(kernel,) * ndim, channels))
                found = cost(problem, dwm())
                ratio = (found.compulsory + found.workspace) / found.compulsory
                ratios[ndim, spatial, kernel] = ratio
                where = f"{ndim}-D, {kernel} taps, {spatial}, {channels} channels"
                rows.append(row(where, "memory, DWM over direct", ratio))
                expanded = expansion(problem, (-(-kernel // 3),) * ndim)
                rows.append(row(where, "filters (eq. 25)", float(expanded.filters)))
                rows.append(row(where, "data over patches (eq. 27)", float(expanded.patches)))
    rows.append(
        claim("DWM always needs more memory: least ratio", 1, min(ratios.values()), above(1))
    )
    for ndim, kernels in ((2, (5, 7, 9, 11)), (3, (5,))):
        least = min(
            ratios[ndim, s, kernel] / ratios[ndim, s, kernel - 2]
            for kernel in kernels
            for s in (28, 14)
        )
        text = f"a larger kernel needs relatively more, {ndim}-D: least growth of a step"
        rows.append(claim(text, 1, least, above(1)))
    for s in (28, 14):
        text = f"7×7×7 needs relatively less than 5×5×5, as outputs shrink, {s}×{s}×{s}"
        rows.append(claim(text, 1, ratios[3, s, 7] / ratios[3, s, 5], below(1)))
    return rows


def equation18() -> list[Row]:
    """One gradient step on F(2, 3)'s transformed filter against one on the filter itself.

    With W = G w and ∇w = Gᵀ ∇W, a step on W is W − η∇W and a step on w transforms to
    W − η G Gᵀ ∇W. They agree for every ∇W only where G Gᵀ = E.
    """
    t = transforms(2, 3, "paper")
    G = [list(r) for r in t.G]
    GGt = [[sum(a * b for a, b in zip(p, q, strict=True)) for q in G] for p in G]
    off = max(abs(v - (i == j)) for i, r in enumerate(GGt) for j, v in enumerate(r))
    rng = np.random.default_rng(18)
    matrix = np.array(t.G, float)
    range_of = matrix @ np.linalg.pinv(matrix)
    w, target = rng.standard_normal(3), rng.standard_normal(3)
    filter_, spectrum = w.copy(), matrix @ w
    for _ in range(STEPS):
        filter_ -= RATE * (filter_ - target)
        # The gradient of half the squared error of two outputs, averaged over white data.
        spectrum -= RATE * _second_moment(t) @ (spectrum - matrix @ target)
    outside = float(np.linalg.norm(spectrum - range_of @ spectrum) / np.linalg.norm(spectrum))
    away = float(np.linalg.norm(spectrum - matrix @ filter_) / np.linalg.norm(spectrum))
    return [
        claim("G Gᵀ ≠ E: largest deviation of an entry", 0, float(off), above(0)),
        row("F(2,3)", f"transformed filters apart after {STEPS} steps, relative", away),
        row("F(2,3)", "part of the spectrum that is no filter's", outside),
    ]


STEPS, RATE = 20, 0.1


def _second_moment(t) -> np.ndarray:
    """E[D AAᵀ D] with D = diag(BT d), d white: the curvature of W's squared error."""
    A, B = np.array(t.AT, float).T, np.array(t.BT, float)
    return (A @ A.T) * (B @ B.T)


def _table(name: str, title: str, function, tolerance: str = "") -> Table:
    return Table(
        PAPER,
        name,
        title,
        lambda full: [Count(PAPER, name, function)],
        partial(cells, unit=UNIT),
        tolerance or "a claim of the paper's prose holds; the table's numbers did not survive",
    )


TABLE3 = _table("table3", "Multiplications saved in 2-D", table3)
TABLE4 = _table("table4", "Multiplications saved in 3-D", table4)
TABLE8 = _table(
    "table8",
    "Multiplications of whole networks",
    table8,
    "a claim of the prose holds; its multiply-adds round to the digit that it prints",
)
TABLE14 = _table("table14", "Memory", table14)
EQUATION18 = _table("equation18", "Updating transformed filters", equation18)
