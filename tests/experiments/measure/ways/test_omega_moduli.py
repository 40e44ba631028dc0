"""What stands beside Ω with moduli."""

from __future__ import annotations

from experiments.measure.ways.omega_moduli import FFMA, GROUPS, cases, planned
from winolab.algorithm import Tile
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
        for tile in mine if group != FFMA else ():
            assert any((t.n, t.r, t.minimal) == (tile.n, tile.r, True) for t, _ in kinds)
        seen |= {(tile, group) for tile in mine}
        assert {p.precision for p, kind in found.items() if kind != "picked"} <= {
            "fp32" if group == FFMA else "fp32_split",
            "fp16",
        }
        assert group != FFMA or {t for t, kind in kinds if kind == "minimal"}
    assert seen == {(tile, group) for tile in MODULI for group in GROUPS}


def test_ffma_units_alone() -> None:
    """Ω4(3,2) and Ω16(9,8) beside them, and what is picked, which has no modulus."""
    found = {p.filter[-1]: planned((p, group), H100) for p, group in cases(FFMA)}
    assert len(list(cases(FFMA))) == 8
    for taps, tile in ((3, Tile(3, 2)), (9, Tile(9, 8))):
        assert tile in [p.tiles[0] for p, kind in found[taps].items() if kind == "minimal"]
    for plans in found.values():
        assert all(p.tiles[0].minimal for p, kind in plans.items() if kind != "moduli")
