"""DWM 2021, Table 14 and equations 24 to 27: the memory that its stages take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from experiments.harness.counted import claim, row
from experiments.harness.facts import facts
from experiments.harness.jobs import Row
from experiments.harness.verdicts import Range, above, at_most, below, equal
from papers.dwm_2021.costs import KERNELS, PAPER, counted, layer
from winolab.algorithm import Problem, dwm
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.cost.complexity import expansion
from winolab.ref.cost.count import cost


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
    rows += [claim(text, 1, ours, accepted) for text, ours, accepted in memory_claims(ratios)]
    return rows + _expansion_claims(rows)


def memory_claims(
    ratios: Mapping[tuple[int, int, int], float],
) -> Iterator[tuple[str, float, Range]]:
    """What the prose says of the ratios by dimension, size and kernel, as far as there are some."""
    if ratios:
        yield "DWM always needs more memory: least ratio", min(ratios.values()), above(1)
    for ndim, kernels in ((2, (5, 7, 9, 11)), (3, (5,))):
        steps = [
            ratio / ratios[d, size, kernel - 2]
            for (d, size, kernel), ratio in ratios.items()
            if d == ndim and kernel in kernels and (d, size, kernel - 2) in ratios
        ]
        if steps:
            text = f"a larger kernel needs relatively more, {ndim}-D: least growth of a step"
            yield text, min(steps), above(1)
    for (d, size, kernel), ratio in ratios.items():
        if (d, kernel) == (3, 7) and (d, size, 5) in ratios:
            text = (
                f"7×7×7 needs relatively less than 5×5×5, as outputs shrink, {size}×{size}×{size}"
            )
            yield text, ratio / ratios[d, size, 5], below(1)


def _expansion_claims(rows: Sequence[Row]) -> list[Row]:
    """What section 4.6 says of equations 25 and 27."""
    filters, data = (
        [r["ours"] for r in rows if equation in r["column"]] for equation in ("eq. 25", "eq. 27")
    )
    more = min(
        float(expansion(problem, (pieces + 1,) * ndim).filters
              / expansion(problem, (pieces,) * ndim).filters)
        for ndim in (2, 3) for kernel in KERNELS[ndim]
        for problem in [layer(ndim, kernel, 1, 2, 1)] for pieces in range(1, kernel)
    )  # fmt: skip
    most = facts(PAPER)["decomposition"]["most_parts"]
    own = max(map(len, decomposition(layer(2, most["filter"], 1, 2, 1), dwm()).cuts))
    return [
        claim("transformed filters are larger: least ratio (eq. 25)", 1, min(filters), above(1)),
        claim("more pieces of a filter take more: least growth (eq. 25)", 1, more, above(1)),
        claim("data are not always larger: least ratio (eq. 27)", 1, min(data), at_most(1)),
        claim("pieces a dimension of the largest kernel", most["parts"], own, equal(most["parts"])),
    ]


TABLE14 = counted("table14", "Memory", table14)
