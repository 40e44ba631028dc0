"""What stands beside Ω with moduli."""

from __future__ import annotations

from experiments.measure.ways.omega_moduli import cases, planned
from winolab.device import H100
from winolab.gpu.families.wgrad_winograd.plan import MODULI


def test_every_modulus_stands_beside_minimal_tiles_of_as_many_taps_and_outputs() -> None:
    seen = set()
    for problem, group in cases():
        if problem.in_channels != 128:
            continue
        found = planned((problem, group), H100)
        kinds = {(p.tiles[0], kind) for p, kind in found.items()}
        mine = {tile for tile, kind in kinds if kind == "moduli"}
        assert mine == {t for t in MODULI if t.n == problem.filter[-1]}
        for tile in mine:
            assert any((t.n, t.r, t.minimal) == (tile.n, tile.r, True) for t, _ in kinds)
        seen |= {(tile, group) for tile in mine}
        assert {p.precision for p, kind in found.items() if kind != "picked"} <= {
            "fp32_split",
            "fp16",
        }
    assert seen == {(tile, group) for tile in MODULI for group in ("fp32", "fp16")}
