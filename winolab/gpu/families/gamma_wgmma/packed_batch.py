"""Output rows of Γ on Tensor Cores that run on from image to image, of the images' rows packed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.gpu.planner.correlation import Correlation


@dataclass(frozen=True)
class PackedBatch:
    """Images ``abreast`` of one another, under them the next ones ``pitch`` rows on; ``rows`` from
    the first output row to the last.
    """

    abreast: int
    pitch: int
    rows: int

    def __str__(self) -> str:
        images = f"{self.abreast} image{'s' * (self.abreast > 1)} abreast"
        return f"{images}, the next ones {self.pitch} rows below"


def gap(c: Correlation, taps: int) -> int:
    """Rows of zeros between images that serve as padding of both, for ``taps`` filter rows."""
    height, before = c.input[1], c.padding[1]
    behind = c.output[1] - 1 + taps - height - before
    return max(0, before, behind)


def packed_batch(
    c: Correlation, taps: int, tiles_width: int, columns: int, images: int, box_rows: int
) -> PackedBatch:
    """How images lie in blocks of ``columns`` tile columns: ``images`` abreast in a box of
    ``box_rows``.

    A box has rows of one image: between two lie as many as a box has, less one, at least.
    """
    row = c.output[0] * tiles_width * images
    abreast = images * (columns // math.gcd(columns, row))
    pitch = max(c.input[1] + max(gap(c, taps), box_rows - 1), c.output[1])
    under = -(-c.batch // abreast)
    return PackedBatch(abreast, pitch, (under - 1) * pitch + c.output[1])


def packed_rows(c: Correlation, tiles_width: int, columns: int, rows: int, images: int) -> int:
    """Rows of a box for blocks of ``columns`` × ``rows``; 0 where packing takes no fewer.

    Two at least, a row of zeros more where there is none: with boxes of one, two layers of 2 × 2
    took 12 and 13 % longer than without.
    """
    taps = c.filter[1]
    most = 4 if gap(c, taps) > 2 else 2
    made, row = packed_batch(c, taps, tiles_width, columns, images, most), c.output[0] * tiles_width

    def blocks(height: int, abreast: int) -> int:
        return -(-height // rows) * -(-abreast * row // columns)

    alone = blocks(c.output[1], c.batch)
    return most if blocks(made.rows, made.abreast) < alone and columns <= 32 else 0
