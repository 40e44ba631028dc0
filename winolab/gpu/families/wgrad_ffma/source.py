"""The translation unit of Ωα(n,r) on FFMA units: its constants, programs and file."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from winolab.algorithm import Tile
from winolab.gpu.codegen.emit import in_namespaces, unit
from winolab.gpu.families.wgrad import MINIMAL
from winolab.gpu.families.wgrad_ffma.config import Config
from winolab.ref.algebra.program import Program, program
from winolab.ref.algebra.transforms import transforms

ZERO = Fraction(0)
TURNED = {"LANE_TURN": "lo", "ROW_TURN": "out / 4"}  # of a lane's floats, staged and read


@lru_cache(maxsize=256)
def programs(tile: Tile, points: str, state_blocks: int, paired: bool = True) -> dict[str, Program]:
    """The transforms of F(n, r) by their names in the kernels, one of each kind for every part;
    without pairs each row is computed by itself.

    Where states are parted, those of 0 and infinity come first, so that pairs of points ±p, which
    share half of their work, lie in one part; moduli's stay as they are, with states of zeros at
    the end of the last part, where they are too few.
    """
    found = transforms(tile.n, tile.r, points)
    if state_blocks == 1:
        made = found.programs if paired else found.rowwise
        return {
            "transform_filter": made.G,
            "transform_input": made.BT,
            "transform_output": made.AT,
        }
    held = -(-tile.alpha // state_blocks)
    order = [*range(tile.alpha)]
    if tile.minimal:
        order = [0, tile.alpha - 1, *range(1, tile.alpha - 1)]
    unused = held * state_blocks - tile.alpha
    output = tuple((*(r[s] for s in order), *[ZERO] * unused) for r in found.AT)
    result = {"transform_output": program(output, paired)}
    for part in range(state_blocks):
        states = order[part * held : (part + 1) * held]
        for name, matrix in (("filter", found.G), ("input", found.BT)):
            rows = [matrix[s] for s in states]
            rows += [(ZERO,) * len(rows[0])] * (held - len(rows))
            suffix = f"_{part}" if part else ""
            result[f"transform_{name}{suffix}"] = program(tuple(rows), paired)
    return result


@lru_cache(maxsize=256)
def source(tile: Tile, points: str, config: Config, segments: str = "flat") -> str:
    """One config's translation unit: ``winolab_wgrad_ffma`` and ``winolab_reduce``. ``segments``
    are "flat", ranges of the sum over rows, or "boxes" of dy.
    """
    sizes = {
        "N": tile.n,
        "R": tile.r,
        "ALPHA": config.states(tile),
        "FIRST": 1,
        "INPUT": 0,
        "OUTPUT": 0,
    }
    return unit(
        f"F({tile.n},{tile.r}), points {points}, {config}",
        {**sizes, **config.constants()},
        programs(tile, points, config.state_blocks, bool(config.paired)),
        ("wgrad_ffma/kernel",),
        files={"SEGMENTS_FILE": f"{segments}.cuh"},
        macros={
            "CONSUMER_THREADS": str(config.consumers),
            **(MINIMAL if tile.minimal else {"INPUTS": "(N + R - 1)"}),
            **(TURNED if config.turned else dict.fromkeys(TURNED, "0")),
        },
    )


def paired_source(parts: Sequence[tuple[Tile, str, Config]]) -> str:
    """One translation unit of one or both kernels of a pair, each in a namespace of its own."""
    return in_namespaces(source(*what, segments="boxes") for what in parts)
