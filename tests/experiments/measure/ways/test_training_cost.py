"""What training costs the host without a GPU: every way is taken, and nothing stays pretended."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import winolab.torch
from experiments.measure.ways.training_cost import FORMATS, LAYERS, ORDERS, cost, pretended
from winolab import calls
from winolab.torch import plain


def test_every_layer_is_found_by_one_look(monkeypatch) -> None:
    looked = []
    known = plain.known

    def note(*what):
        looked.append(known(*what))
        return looked[-1]

    monkeypatch.setattr(plain, "known", note)
    before = calls.kept
    with pretended():
        for kind, order in product(FORMATS, ORDERS):
            looked.clear()
            forward, backward, count = cost(kind, order, rounds=1)
            assert forward > 0 < backward
            assert count < 110  # 160 and more before there was one look
            last = looked[-(3 * len(LAYERS) - 1) :]  # the first layer's input has no gradient
            assert all(last)
    assert calls.kept is before
    x, w = torch.ones(1, 2, 3, 3), torch.ones(1, 2, 3, 3)
    assert winolab.torch.conv2d(x, w).item() == pytest.approx(18)
