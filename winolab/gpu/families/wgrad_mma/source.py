"""The translation unit of fused Ωα(n,r) on mma.sync: its constants, programs and file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from winolab.algorithm import Tile
from winolab.gpu.codegen.emit import unit
from winolab.gpu.families.wgrad import MINIMAL, TYPES
from winolab.gpu.families.wgrad_mma.config import Config
from winolab.gpu.families.wgrad_mma.tiling import first
from winolab.gpu.planner.request import DTYPES
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.transforms import transforms


@dataclass(frozen=True)
class Transform:
    """A program that prints itself in FP32, or of pairs in ``precision``."""

    program: Program
    precision: str

    def cuda(self, name: str, wide: bool = False) -> str:
        """The device function ``name``."""
        if self.precision:
            return self.program.cuda_pairs(name, self.precision)
        return self.program.cuda(name, wide)


@lru_cache(maxsize=256)
def source(
    tile: Tile,
    points: str,
    precision: str,
    out_dtype: str,
    config: Config,
    segments: str = "flat",
) -> str:
    """One config's translation unit: ``winolab_wgrad_mma`` and ``winolab_reduce``. ``segments``
    are "flat", ranges of the sum over rows, or "boxes" of dy.
    """
    found = transforms(tile.n, tile.r, points, config.scaling)
    programs = found.programs if config.paired else found.rowwise
    of = precision if config.half2 else ""
    return unit(
        f"Ω{tile.alpha}({tile.n},{tile.r}) {precision}, points {points}, {config}",
        {
            "N": tile.n,
            "R": tile.r,
            "ALPHA": tile.alpha,
            "INPUT": TYPES[DTYPES[precision]],
            "OUTPUT": TYPES[out_dtype],
            "FIRST": int(first(out_dtype)),
            "BOXES": int(segments == "boxes"),
            **config.constants(),
        },
        {
            "transform_filter": Transform(programs.G, of),
            "transform_input": Transform(programs.BT, of),
            "transform_output": programs.AT,
        },
        ("wgrad_mma/kernel",),
        files={
            "SEGMENTS_FILE": f"{segments}.cuh",
            "PRODUCE_FILE": "produce_ahead.cuh" if config.ahead else "produce.cuh",
        },
        macros={"STAGED_PAD": str(config.staged), **MINIMAL},
    )
