// What the blocks of a Γ kernel work on: a correlation, cut into work tiles of BM output channels ×
// (ROWS × COLUMNS) tiles. GAMMA_PARAMS stands for the struct of the family's parameters, which
// block.cuh declares before it.
#pragma once

#include "pipe.cuh"
#include "pipeline.cuh"

// What a block works on: output channels, output rows and tile columns from these on.
struct GammaWorkTile {
  int block_m, row, column;
  __device__ __forceinline__ GammaWorkTile(const GAMMA_PARAMS& p, int index) {
    block_m = index % p.blocks_m;
    index /= p.blocks_m;
    row = index % p.blocks_row * ROWS;
    column = index / p.blocks_row * COLUMNS;
  }
};

// A tile column: one tile's width of one image and depth.
struct Column {
  int batch, depth, first;  // first: output index along the width
  __device__ __forceinline__ Column(const GAMMA_PARAMS& p, int index) {
    first = index % p.tiles_width * N;
    index /= p.tiles_width;
    depth = index % p.out_depth;
    batch = index / p.out_depth;
  }
};

// The work tiles of a block, one after another: the first p.whole it computes alone, the others
// with its cluster, whose blocks share their summation.
struct TileScheduler {
  int index, sharers = 1;  // sharers: blocks that share a work tile's sum
  __device__ __forceinline__ explicit TileScheduler(const GAMMA_PARAMS& p) : index(blockIdx.x) { share(p); }
  __device__ __forceinline__ bool left(const GAMMA_PARAMS& p) const { return index < p.work_tiles; }
  __device__ __forceinline__ void next(const GAMMA_PARAMS& p) {
    index += gridDim.x / sharers;
    share(p);
  }

 private:
  __device__ __forceinline__ void share(const GAMMA_PARAMS& p) {
    if constexpr (SPLIT_K > 1) {
      if (sharers > 1 || index < p.whole) return;
      index = p.whole + blockIdx.x / SPLIT_K;
      sharers = SPLIT_K;
    }
  }
};

// A block's share of a work tile's summation, in V stages: (outer tap, chunk), chunk fastest.
struct Steps {
  int all, begin, end;
  __device__ __forceinline__ Steps(const GAMMA_PARAMS& p, int sharers) {
    all = p.taps_depth * (p.taps_height / SHARE) * p.taps_width * p.chunks;
    const int rank = SPLIT_K > 1 && sharers > 1 ? cluster_rank() : 0;
    begin = (int)((long long)all * rank / sharers);
    end = (int)((long long)all * (rank + 1) / sharers);
  }
};
