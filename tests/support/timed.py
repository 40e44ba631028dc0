"""Plans that are timed side by side, with a GPU that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from experiments.measure.published import rows
from winolab.bench.contenders import digest
from winolab.device import Device
from winolab.problem import Problem

Timed = tuple[str, Problem, str]  # a case: direction, problem, group of precisions


def stand_in(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, device: Device, took: Sequence
) -> list[Timed]:
    """Put ``device`` in place of a GPU, and what gives a case's plans, in order, the times ``took``
    in place of ``module.name``. Returned is what is timed, as it goes."""
    timed: list[Timed] = []

    def side_by_side(direction, problem, group, kinds, errors) -> list[dict[str, Any]]:
        timed.append((direction, problem, group))
        return [
            {"kind": kind, "plan": str(p.config), "source": digest(p), "precision": group,
             "kernel": p.kernel, "layout": "NHWC", "tflops": 1.0, "cold_us": [t, t, t],
             "input": "", "filter": ""}
            for (p, kind), t in zip(kinds.items(), took, strict=True)
        ]  # fmt: skip

    monkeypatch.setattr(rows.bench, "ready", lambda: None)
    monkeypatch.setattr(rows.bench, "context", lambda: {"device": device.name})
    monkeypatch.setattr(rows.driver, "device", lambda index: device)
    monkeypatch.setattr(rows, "compile_all", lambda plans: len(list(plans)))
    monkeypatch.setattr(rows, "free", lambda: None)
    monkeypatch.setattr(rows, "cores", lambda: 1)
    monkeypatch.setattr(module, name, side_by_side)
    return timed
