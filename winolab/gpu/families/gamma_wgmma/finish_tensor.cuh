// The epilogue of gamma_wgmma/kernel.cuh. Consumers stage their accumulators by tile, in passes
// over two buffers, and go on with the next work tile; producers, once they are
// ahead, fetch every state of four output channels of a tile, apply AT and store. Blocks of a
// cluster take different elements, and add what all of them staged: all their threads meet once a
// pass (racecheck follows no other signal between blocks), before its sums are read and after those
// of the pass before were.
#pragma once

#include "filters.cuh"
#include "place.cuh"

constexpr int ROW_OUT = BM + 4;  // floats: lanes of a store hit 32 banks

struct Staging {
  float out[BUFFERS][ALPHA][TILES_OUT][ROW_OUT];  // accumulators
  unsigned long long full[BUFFERS], empty[BUFFERS];
};

__device__ __forceinline__ void staging_init(Staging& staging) {
  for (int b = 0; b < BUFFERS; ++b) {
    barrier_init(&staging.full[b], CONSUMERS);
    barrier_init(&staging.empty[b], PRODUCERS);
  }
}

using Delivered = Pipe<BUFFERS>;

// What threads of a cluster that neither stage nor read do about a work tile's sums.
__device__ __forceinline__ void meet() {
  if constexpr (SPLIT_K > 1)
    for (int pass = 0; pass < PASSES; ++pass) cluster_sync();
}

// By loaders' other warps.
__device__ __forceinline__ void attend(const GammaWgmmaParams& p, Staging&) {
  if constexpr (SPLIT_K > 1)
    for (int index = blockIdx.x / SPLIT_K; index < p.work_tiles; index += gridDim.x / SPLIT_K) meet();
}

// By consumers, with a work tile's accumulators.
__device__ __forceinline__ void deliver(const GammaWgmmaParams&, Staging& staging,
                                        const float (&acc)[STEPS][32], int group, int,
                                        Delivered& pipe) {
  const int thread = threadIdx.x, warp = thread / 32 % 4;
  const int g = thread % 32 / 4, q = thread % 4;
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    if constexpr (SPLIT_K == 1) barrier_wait(&staging.empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll
    for (int s = 0; s < HELD; ++s)
#pragma unroll
      for (int j = 0; j < TILES_OUT / 8; ++j) {
        const int column = pass * (TILES_OUT / 8) + j;  // of 8 tiles
        float* to = &staging.out[pipe.stage][group * HELD + s][j * 8 + q * 2][warp * 16 + g];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          to[e % 2 * ROW_OUT + e / 2 * 8] = acc[s * HALVES + column / 8][column % 8 * 4 + e];
      }
    if constexpr (SPLIT_K == 1)
      barrier_arrive(&staging.full[pipe.stage]);
    else
      cluster_sync();
    pipe.advance();
  }
}

// Every state of four channels of a tile, of all blocks' sums.
__device__ __forceinline__ void gather(float (&state)[4][ALPHA], float* staged) {
#pragma unroll
  for (int rank = 0; rank < SPLIT_K; ++rank) {
    const float* from = SPLIT_K > 1 ? cluster_pointer(staged, rank) : staged;
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) {
      const float4 v = *reinterpret_cast<const float4*>(from + s * (TILES_OUT * ROW_OUT));
      const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int c = 0; c < 4; ++c)
        state[c][s] = rank == 0 ? values[c] : __fadd_rn(state[c][s], values[c]);
    }
  }
}

__device__ __forceinline__ void finish(const GammaWgmmaParams& p, Staging& staging, int index,
                                       Delivered& pipe) {
  const int rank = SPLIT_K > 1 ? cluster_rank() : 0, thread = threadIdx.x - CONSUMERS;
  const GammaWorkTile work(p, index);
  const int m = thread % (BM / 4) * 4, channel = work.block_m * BM + m;  // of the thread's outputs
  AccuracyCheck<> check(p.header, p.rows + channel);
  const float scale = input_scale(p.header);
#pragma unroll 1
  for (int pass = 0; pass < PASSES; ++pass) {
    if constexpr (SPLIT_K == 1)
      barrier_wait(&staging.full[pipe.stage], pipe.phase);
    else
      cluster_sync();
#pragma unroll 1
    for (int e = rank * PRODUCERS + thread; e < TILES_OUT * BM / 4; e += SPLIT_K * PRODUCERS) {
      const int local = e / (BM / 4), tile = pass * TILES_OUT + local;
      float state[4][ALPHA], y[4][N];
      gather(state, &staging.out[pipe.stage][0][local][m]);
#pragma unroll
      for (int c = 0; c < 4; ++c) transform_output(state[c], y[c]);
      const int at = work.column + tile % COLUMNS;
      TilePlace column(p, at);
      const int row = column.down(p, work.row + tile / COLUMNS);
      const int columns = channel < p.out_channels ? column.outputs(p, at, row) : 0;
      Output* to = p.y + column.batch * p.y_batch + column.depth * p.y_depth + row * p.y_row +
                   (long long)column.first * p.y_pixel + channel;
      const int image = min(column.batch, p.batch - 1);
      const float back = inverse_of(BY_IMAGE ? image_scale(p.header, scale, image) : scale);
      unsigned few = check.tile(y, columns, back);
#pragma unroll 1
      for (int c = 0; few && channel + c < p.out_channels; ++c, few >>= 1)
        if (few & 1)
          note_in_row(p.header, to + c, columns, column.first == 0, p.y_pixel,
                      check.factors(c, back));
#ifdef EPILOGUE
      finish_tile<4, YVEC == 4>(p.epilogue, y, to, p.y, p.y_pixel, columns, channel,
                                p.out_channels - channel);
#endif
#pragma unroll
      for (int o = 0; o < N; ++o) {
        const float v[4] = {y[0][o], y[1][o], y[2][o], y[3][o]};
        if (o < columns) store(to + (long long)o * p.y_pixel, v, p.out_channels - channel);
      }
    }
    if constexpr (SPLIT_K == 1) barrier_arrive(&staging.empty[pipe.stage]);
    pipe.advance();
  }
}
