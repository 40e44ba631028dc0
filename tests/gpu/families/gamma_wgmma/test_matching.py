"""Pairs of rows and columns, the same ones as SciPy's."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from winolab.gpu.families.gamma_wgmma.matching import matching


def test_it_pairs_as_scipy_does() -> None:
    rng = np.random.default_rng(0)
    full = 0
    for _ in range(2000):
        rows = int(rng.integers(1, 9))
        edges = rng.random((rows, rows + int(rng.integers(0, 9)))) < rng.random()
        found = matching(edges.tolist())
        assert found == linear_sum_assignment(edges, maximize=True)[1].tolist()
        full += bool(edges[np.arange(rows), found].all())
    assert 200 < full < 1800
