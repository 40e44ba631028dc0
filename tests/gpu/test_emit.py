from __future__ import annotations

from dataclasses import fields

from winolab.gpu.emit import emit
from winolab.gpu.plan import VARIANTS, Variant
from winolab.nouns import Tile
from winolab.ref.transforms import transforms


def test_the_source_holds_the_variant_and_the_exact_programs() -> None:
    variant = VARIANTS[8][0]
    source = emit(Tile(6, 3), "best", variant)
    for field in fields(Variant):
        assert f"constexpr int {field.name.upper()} = {getattr(variant, field.name)};" in source
    programs = transforms(6, 3).programs
    for program, name in ((programs.G, "filter"), (programs.BT, "input"), (programs.AT, "output")):
        assert program.cuda(f"transform_{name}") in source


def test_points_change_the_source() -> None:
    assert emit(Tile(8, 9), "best", VARIANTS[16][0]) != emit(Tile(8, 9), "paper", VARIANTS[16][0])
