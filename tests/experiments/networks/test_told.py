"""What is said of whole networks, from made-up rows."""

from __future__ import annotations

import pytest

from experiments.networks import told
from experiments.networks.backbones import meta, parameters
from experiments.networks.end_to_end import NETWORKS


def case(step: str, order: str, **of: tuple[float, float, float]) -> list[dict]:
    """A case's rows: memory, and deviations of outputs and gradients, by method."""
    common = {"network": "n", "batch": 32, "format": "fp32", "order": order, "mode": "eager",
              "step": step}  # fmt: skip
    rows = []
    for who, (peak, logits, gradients) in of.items():
        found = {"gradients": gradients} if step == "training" else {}
        mine = "7 of 8" if who == "winolab" else ""
        rows.append({**common, "method": who, "memory_mb": peak, "logits": logits,
                     "converted": mine, **found})  # fmt: skip
    return rows


def test_memory_is_of_training_and_deviations_are_the_largest(monkeypatch) -> None:
    rows = [
        *case("forward", "last", winolab=(1.0, 3e-6, 0.0), torch=(9.0, 1e-6, 0.0)),
        *case("training", "last", winolab=(100.0, 1e-6, 1e-3), torch=(400.0, 2e-6, 1e-4)),
        *case("training", "first", winolab=(2000.0, 1e-6, 2e-3), torch=(2000.0, 2e-6, 5e-4),
              tf32=(1.0, 1e-3, 0.1)),
        *case("training", "none", winolab=(1.0, 9.0, 9.0)),  # nothing stands beside it
    ]  # fmt: skip
    monkeypatch.setattr(told, "stored", lambda name: rows)
    *_, line = told.networks()
    assert line == (
        "| n, FP32 | 7 of 8 | 0.50 (2,000 MB) | 3.0e-06, 2.0e-06, 1.0e-03 | "
        "2.0e-03, 5.0e-04, 1.0e-01 |"
    )
    monkeypatch.setattr(told, "stored", lambda name: [])
    assert told.networks() == []


@pytest.mark.parametrize(
    ("commit", "beside"),
    # Copies of the parameters beside those of winolab's contender and of PyTorch's: the network's,
    # two contenders', and two for each contender that had been trained.
    [("f421becfc181", (3, 5)), ("74fc64cb", (7, 7))],
)
def test_what_others_held_is_no_memory_of_a_step(monkeypatch, commit, beside) -> None:
    own = {"winolab": 1000.0, "torch": 2000.0, "tf32": 0.0}
    parameters = 4e-6 * told.PARAMETERS["vgg16"]
    peaks = {
        who: own[who] + copies * parameters for who, copies in zip(own, (*beside, 7), strict=True)
    }
    rows = case("training", "last", **{who: (peak, 1e-6, 1e-3) for who, peak in peaks.items()})
    for row in rows:
        row |= {"network": "vgg16", "commit": commit, "peak_mb": row.pop("memory_mb")}
    monkeypatch.setattr(told, "stored", lambda name: rows)
    assert "| 0.50 (1,000 MB) |" in told.networks()[-1]


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_are_those_of_the_networks(name: str) -> None:
    assert parameters(meta(NETWORKS[name].build)) == told.PARAMETERS[name]
