// Where a tile column of gamma_wgmma/kernel.cuh lies: every IMAGES images vary first, so that boxes
// of them serve rows of few tiles.
#pragma once

#include "block.cuh"
#include "tile_scheduler.cuh"

struct TilePlace : Column {
  __device__ __forceinline__ TilePlace(const GammaWgmmaParams& p, int index) : Column(p, index / IMAGES) {
    batch = batch * IMAGES + index % IMAGES;
  }

  // Goes down from the images abreast to those that have a row of the packed batch; their own row.
  __device__ __forceinline__ int down(const GammaWgmmaParams& p, int row) {
    if constexpr (PACKED == 0) return row;
    const int under = row / p.pitch;
    batch += under * p.abreast;
    return row - under * p.pitch;
  }

  // Outputs along the width in a row, of the tile column of that index: none outside y.
  __device__ __forceinline__ int outputs(const GammaWgmmaParams& p, int index, int row) const {
    const bool there = index < p.columns && (PACKED == 0 || batch < p.batch);
    return there && row < p.out_height ? max(0, min(N, p.out_width - first)) : 0;
  }
};

// A tile's word for the epilogue: how many outputs it has along the width, whether they begin a row
// (STARTS), and the power of two that they are scaled back by for their image's sake; in 16 bits the
// first alone. One word of both costs no register more than the first: of two arrays Γ8(6,3) spilled.
__device__ __forceinline__ int word_of(int columns, bool starts, float back) {
  return PARTS == 2 ? columns | starts << 7 | (int)(__float_as_uint(back) >> 23) << 8 : columns;
}
__device__ __forceinline__ int columns_of(int word) { return PARTS == 2 ? word & 0x7f : word; }
__device__ __forceinline__ bool starts(int word) { return word & 0x80; }
__device__ __forceinline__ float back_of(int word) {
  return __uint_as_float((unsigned)(word & 0xff00) << 15);
}

// A block's work tile: MULTICAST neighbouring blocks have the same output channels and rows, and
// neighbouring columns.
__device__ __forceinline__ GammaWorkTile work_at(const GammaWgmmaParams& p, int index) {
  const int at = index / MULTICAST;
  GammaWorkTile work(p, at);
  // Every block has its share of the narrow ones, which take less time.
  if (NARROW > 0) work.block_m = (at + at / p.rotation) % p.blocks_m;
  work.column = work.column * MULTICAST + index % MULTICAST * COLUMNS;
  return work;
}
