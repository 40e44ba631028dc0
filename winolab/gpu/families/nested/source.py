"""The translation unit of nested Winograd on Tensor Cores: its constants, programs and files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from functools import lru_cache

from winolab.algorithm import Tile
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families import scale
from winolab.gpu.families.nested.config import KC, STAGED_LANES, STAGED_THREADS, Config
from winolab.gpu.families.nested.tiles import Pair, in_registers
from winolab.gpu.planner.correlation import SCALING
from winolab.points import points_for
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.transforms import Transforms, transforms

WIDE = ("filter_rows", "filter_columns")  # in FP64 where products are split


def name(tiles: Sequence[Tile]) -> str:
    """Lavin & Gray's, of the algorithm: F(4×4,3×3); with its states, if there are more than
    inputs: F(6×6,3×3;9×9)."""
    n, r, states = ("×".join(str(getattr(t, side)) for t in tiles) for side in ("n", "r", "alpha"))
    more = f";{states}" * any(not t.minimal for t in tiles)
    return f"F({n},{r}{more})"


@lru_cache(maxsize=256)
def made_of(tiles: Pair, points: str) -> tuple[Transforms, Transforms]:
    """The transforms along both dimensions."""
    first, second = (_made_of(t, points) for t in tiles)
    return first, second


@lru_cache(maxsize=256)
def _made_of(tile: Tile, points: str) -> Transforms:
    return transforms(tile.n, tile.r, points_for(points, tile), SCALING)


@lru_cache(maxsize=256)
def halvings(tiles: Pair, points: str) -> tuple[int, int]:
    """How often FP16's input and filter are halved, so that no state overflows whose input does
    not, and no sum of theirs where results could not. The filter is spared as much as all taps
    together are its largest: it overflows where elements are FP16's largest over their number."""
    steps = scale.constants(*zip(tiles, made_of(tiles, points), strict=True))
    taps = math.prod(t.r for t in tiles)
    return steps["SCALE_INPUT"], max(0, steps["SCALE_FILTER"] - (taps.bit_length() - 1))


@lru_cache(maxsize=256)
def _ends(tiles: Pair, points: str, precision: str) -> tuple[Program, Program]:
    """BT and AT along the height, with the scale of FP16's input and what takes that and the
    filter's back; what is split is scaled by what it holds."""
    programs = made_of(tiles, points)[0].programs
    if precision != "fp16":
        return programs.BT, programs.AT
    of_x, of_w = halvings(tiles, points)
    return (
        programs.BT.scaled(Fraction(1, 2**of_x)),
        programs.AT.scaled(Fraction(2 ** (of_x + of_w))),
    )


def infinite(made: Transforms) -> int:
    """The state that is of the last tap alone, the point being at infinity; -1: there is none."""
    return next((i for i, row in enumerate(made.G) if not any(row[:-1])), -1)


@lru_cache(maxsize=256)
def source(
    tiles: Pair,
    points: str,
    config: Config,
    types: tuple[str, str] = ("fp32_split", "float32"),
    rest: int = 0,
) -> str:
    """The translation unit of one config: the transforms and the products.

    ``types``: precision and the result's dtype; ``rest``: products of the last stage of 16 bits.
    """
    split, made = types[0] == "fp32_split", made_of(tiles, points)
    first, second = (m.programs for m in made)
    bt, at = _ends(tiles, points, types[0])
    programs = {"filter_rows": first.G, "filter_columns": second.G}
    programs |= {"input_rows": bt, "input_columns": second.BT}
    programs |= {"output_rows": at, "output_columns": second.AT}
    files = {
        f"{part.upper()}_FILE": f"{staged(tiles)}{part}.cuh"
        for part in ("filter", "input", "output")
    }
    return unit(
        f"{name(tiles)} {types[0]}, points {points}, {config}",
        _constants(tiles, points, config, types, rest),
        programs,
        ("nested/kernel",),
        WIDE if split else (),
        files | {"ROWS_FILE": f"rows_{'scaled' if split else 'fixed'}.cuh"},
    )


@lru_cache(maxsize=256)
def filter_source(tiles: Pair, points: str, config: Config) -> str:
    """The translation unit of what transforms filters of split products, and of scales."""
    types = "fp32_split", "float32"
    first, second = (m.programs for m in made_of(tiles, points))
    return unit(
        f"{name(tiles)} {types[0]}, points {points}, filter",
        _constants(tiles, points, config, types, 0),
        {"filter_rows": first.G, "filter_columns": second.G},
        (f"nested/{staged(tiles)}filter",),
        WIDE,
        {"ROWS_FILE": "rows_scaled.cuh"},
        lean=True,
    )


def _constants(
    tiles: Pair, points: str, config: Config, types: tuple[str, str], rest: int
) -> dict[str, int]:
    """What all files of a unit are compiled with."""
    precision, out_dtype = types
    split, made = precision == "fp32_split", made_of(tiles, points)
    constants = {"N": math.prod(t.n for t in tiles), "PARTS": 2 if split else 1}
    constants |= {"BF16": int(precision == "bf16"), "WIDE": int(split)}
    constants |= {"WIDE_OUT": int(out_dtype == "float32"), "WIDE_SUMS": int(split)}
    constants |= {"KC": KC[precision], "REST": rest}
    for side, tile, its in zip("HW", tiles, made, strict=True):
        constants |= {f"N{side}": tile.n, f"R{side}": tile.r, f"I{side}": tile.inputs}
        constants |= {f"A{side}": tile.alpha, f"INFINITE_{side}": infinite(its)}
        constants |= {f"SHIFT_{side}": tile.r // tile.n}  # tiles from a piece to the next
    constants |= {name.upper(): value for name, value in asdict(config).items()}
    constants |= {"BM": config.bm, "SHARED": config.shared_memory}
    constants |= scale.constants(*zip(tiles, made, strict=True)) | (scale.BLOCKS if split else {})
    if precision == "fp16":
        constants |= dict(
            zip(("SCALE_INPUT", "SCALE_FILTER"), halvings(tiles, points), strict=True)
        )
    return constants | {"LOSSES": losses(tiles), "STAGED_THREADS": STAGED_THREADS}


def staged(tiles: Pair) -> str:
    """What the names of files and kernels begin with that exchange columns in shared memory."""
    return "" if in_registers(tiles) else "staged_"


def exchanged(tiles: Pair, precision: str) -> dict[str, int]:
    """Bytes of shared memory through which transforms exchange columns and rows, by kernel."""
    if in_registers(tiles):
        return {"filter": 0, "input": 0, "output": 0}
    (first, second), lanes = tiles, KC[precision] // 2
    wide = 16 if precision == "fp32_split" else 8
    return {
        "filter": first.alpha * second.r * lanes * wide,
        "input": first.alpha * second.inputs * lanes * 8,
        "output": first.n * second.alpha * STAGED_LANES * 8,
    }


def losses(tiles: Pair) -> int:
    """Parts of a piece and chunk of which a row's losses are found: its columns."""
    return 1 if in_registers(tiles) else tiles[1].r
