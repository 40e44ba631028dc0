"""Whom to pair with whom: as scipy.optimize.linear_sum_assignment, which takes 0.3 s to import."""

from __future__ import annotations

import math
from collections.abc import Sequence


def matching(edges: Sequence[Sequence[bool]]) -> list[int]:
    """For each row a column of its own, so that as many as can be are edges; columns are as many as
    rows or more.

    Shortest augmenting paths (Crouse 2016, "On implementing 2D rectangular assignment algorithms"),
    an edge costing -1; of equal ones the same are taken as by SciPy, which kernels' constants
    follow.
    """
    count = len(edges[0])
    prices, worth = [0] * len(edges), [0] * count
    columns, rows = [-1] * len(edges), [-1] * count
    for begin in range(len(edges)):
        at, lowest, sink = begin, 0, -1
        remaining = list(range(count))[::-1]
        costs: list[float] = [math.inf] * count
        path, seen, closed = [-1] * count, {begin}, []
        while sink < 0:
            seen.add(at)
            least, index = math.inf, -1
            base = lowest - prices[at]
            for place, column in enumerate(remaining):
                cost = base - edges[at][column] - worth[column]
                if cost < costs[column]:
                    path[column], costs[column] = at, cost
                cost = costs[column]
                if cost < least or (cost == least and rows[column] < 0):
                    least, index = cost, place
            lowest = int(least)
            column = remaining[index]
            if rows[column] < 0:
                sink = column
            else:
                at = rows[column]
            closed.append(column)
            remaining[index] = remaining[-1]
            remaining.pop()
        prices[begin] += lowest
        for row in seen - {begin}:
            prices[row] += lowest - int(costs[columns[row]])
        for column in closed:
            worth[column] -= lowest - int(costs[column])
        column, row = sink, -1
        while row != begin:
            row = path[column]
            rows[column] = row
            columns[row], column = column, columns[row]
    return columns
