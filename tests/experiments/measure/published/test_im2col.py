"""What is measured of Im2col-Winograd's policies: each planned, on and off, without a GPU."""

from __future__ import annotations

from collections import Counter

from experiments.measure.published import im2col
from winolab.device import H100
from winolab.gpu.families.gamma_ffma.config import Config
from winolab.gpu.families.gamma_ffma.plan import SegmentedPlan


def test_every_policy_of_im2col_winograd() -> None:
    """Segments only where n leaves some of the width; ours beside them."""
    every = list(im2col.cases())
    assert Counter((c.alpha, c.divides) for c in every) == {
        (8, True): 18, (8, False): 6, (16, True): 9, (16, False): 3,
    }  # fmt: skip
    for case in (every[0], every[2], every[-2]):
        found = {kind: p for p, kind in im2col.planned(case, H100).items()}
        blocks = 3 if case.alpha == 16 else 2
        assert len(found) == blocks * (2 if case.divides else 4) + 1
        cut = [kind for kind, p in found.items() if isinstance(p, SegmentedPlan)]
        assert all("segments" in kind for kind in cut)
        assert bool(cut) != case.divides
        for kind, p in found.items():
            if isinstance(p.config, Config) and kind != "picked":
                assert p.config.fused == ("fused" in kind)
                assert p.config.overlap == ("ruse" in kind)
        assert im2col.key(case)["kernel_of"].startswith(f"gamma:{case.alpha}:")
