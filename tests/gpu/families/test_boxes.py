"""Boxes of tiles: together they have every tile once."""

from __future__ import annotations

from winolab.gpu.families.boxes import box


def test_boxes_cover_every_tile_once() -> None:
    for images, height, width in ((1, 1, 1), (32, 7, 7), (3, 1, 300), (2, 150, 3), (128, 3, 3)):
        b = box(images, height, width, 128)
        assert b.tiles <= 128
        for blocks, size, count in (
            (b.blocks_width, b.width, width),
            (b.blocks_height, b.height, height),
            (b.blocks_images, b.images, images),
        ):
            assert (blocks - 1) * size < count <= blocks * size
    assert box(32, 7, 7, 128).blocks == 14  # 12.25 blocks' worth of tiles
