// Where a tile's pixels are that are copied element by element.
#pragma once

#include "tile_scheduler.cuh"

struct alignas(4 * sizeof(Element)) Vector {
  Element c[4];  // neighbouring channels of a pixel
};

// Where a tile is read: its first pixel under an outer tap; a bit a pixel inside.
struct alignas(16) TileSource {
  const Element* x;
  unsigned inside;
};

// ``At``: how a block's columns are counted, Column or TilePlace.
template <class At>
__device__ __forceinline__ TileSource source_of(const GAMMA_PARAMS& p, const GammaWorkTile& work,
                                                int tile, int fd, int fh, int fw, bool any) {
  const int index = work.column + tile % COLUMNS;
  const At at(p, index);
  const int d = at.depth + fd - p.pad_depth, w = at.first + fw * R - p.pad_width;
  const int h = work.row + tile / COLUMNS + fh - p.pad_height;
  const bool row = any && index < p.columns && (unsigned)d < (unsigned)p.depth &&
                   (unsigned)h < (unsigned)p.height;
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < ALPHA; ++i)
    inside |= (unsigned)(row && (unsigned)(w + i) < (unsigned)p.width) << i;
  return {p.x + at.batch * p.x_batch + d * p.x_depth + h * p.x_row + (long long)w * p.x_pixel,
          inside};
}
