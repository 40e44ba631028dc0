// The output transform of a Γ kernel. Consumers stage their accumulators in shared memory, read them,
// add what the blocks of a cluster have summed, apply AT and store y.
#pragma once

#include "produce.cuh"

// Accumulators are staged by tile, one float at a time: a vector store would tie their registers'
// banks, and an FFMA that reads a, b and an accumulator from one bank takes two cycles. Outputs of a
// lane are rotated by its tile, LANES_T at a time, so that a warp writes to 32 different banks.
__device__ __forceinline__ void stage(GammaFfmaShared& shared, const float (&acc)[STATES][TT][TM],
                                      int pass, int state0, int sharer) {
  const int ln = threadIdx.x % LANES_M, lt = threadIdx.x % 32 / LANES_M;
#pragma unroll
  for (int s = 0; s < STATES; ++s)
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
      const int tile = sharer * (STAGED / SHARERS) + (j / SIDE * LANES_T + lt) * SIDE + j % SIDE;
      float* row = shared.out + ((state0 + s) * STAGED + tile) * ROW + ln;
#pragma unroll
      for (int i = 0; i < TM; ++i)
        row[i / LANES_T * 32 + (i + lt) % LANES_T * LANES_M] = acc[s][pass * HELD + j][i];
    }
}

// What stage() has put where: a tile and an output of the block, BM where there is none.
struct StagedOutput {
  int tile, output;
  __device__ __forceinline__ StagedOutput(int staged, int pass, int group, int lane) {
    const int sharer = staged / (STAGED / SHARERS), at = staged % (STAGED / SHARERS);
    const int inside = SIDE == 4 ? pass * (STAGED / SHARERS) + at
                                 : at / SIDE * 4 + pass * SIDE + at % SIDE;
    tile = sharer * (BT / SHARERS) + inside;
    const int ln = lane % LANES_M, lt = at / SIDE % LANES_T;
    const int i = group * LANES_T + (lane / LANES_M + LANES_T - lt) % LANES_T;
    output = i < VECTORS ? (i / 4 * LANES_M + ln) * 4 + i % 4 : i < TM ? i * LANES_M + ln : BM;
  }
};

// Where the outputs of a work tile's tiles lie, and how many there are.
__device__ __forceinline__ void locate(const GammaFfmaParams& p, GammaFfmaShared& shared,
                                       const GammaWorkTile& work) {
  for (int tile = threadIdx.x; tile < BT; tile += CONSUMERS) {
    const int at = work.column + tile % COLUMNS, row = work.row + tile / COLUMNS;
    const Column column(p, at);
    shared.offset[tile] = column.batch * p.y_batch + column.depth * p.y_depth + row * p.y_row +
                          (long long)column.first * p.y_pixel;
    shared.columns[tile] =
        at < p.columns && row < p.out_height ? min(N, p.out_width - column.first) : 0;
  }
}

// A staged value, summed over the blocks that share the summation, in the order of their ranks.
template <int SHARES>
__device__ __forceinline__ float reduced(const float* staged) {
  if constexpr (SHARES == 1) return *staged;
  float sum = cluster_load(staged, 0);
#pragma unroll
  for (int r = 1; r < SHARES; ++r) sum = __fadd_rn(sum, cluster_load(staged, r));
  return sum;
}

// This block's share of a pass's outputs; a warp takes 32 of a tile. ``added``: to what y has.
template <int SHARES>
__device__ __forceinline__ void store_share(const GammaFfmaParams& p, const GammaFfmaShared& shared,
                                            const GammaWorkTile& work, int pass, bool added) {
  const int thread = threadIdx.x;  // signed: by unsigned numbers the loop takes 91 instructions more
  const int warp = thread / 32, lane = thread % 32, rank = SHARES > 1 ? cluster_rank() : 0;
#pragma unroll 2
  for (int e = rank * WARPS + warp; e < STAGED * GROUPS_M; e += SHARES * WARPS) {
    const int staged = e / GROUPS_M, group = e % GROUPS_M;
    const StagedOutput place(staged, pass, group, lane);
    const int output = work.block_m * BM + place.output;
    float* y = p.y + shared.offset[place.tile] + output;
    const int columns =
        place.output < BM && output < p.out_channels ? shared.columns[place.tile] : 0;
    const float* from = shared.out + staged * ROW + group * 32 + lane;
    float state[ALPHA], out[N];
    [[maybe_unused]] float before[N];  // what y has
    if constexpr (PARTIAL > 0) {
#pragma unroll
      for (int o = 0; o < N; ++o) before[o] = added && o < columns ? y[o * p.y_pixel] : 0.0f;
    }
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) state[s] = reduced<SHARES>(from + s * STAGED * ROW);
    transform_output(state, out);
    if constexpr (PARTIAL > 0) {
#pragma unroll
      for (int o = 0; o < N; ++o)
        if (added) out[o] = __fadd_rn(before[o], out[o]);
    }
#ifdef EPILOGUE
    finish_tile<1, false>(p.epilogue, reinterpret_cast<float(&)[1][N]>(out), y, p.y, p.y_pixel,
                          columns, output, 1);
#endif
#pragma unroll
    for (int o = 0; o < N; ++o) {
      if (o < columns) *y = out[o];
      y += p.y_pixel;
    }
  }
}

// The outputs of a staged pass. Where blocks share the work tile, all threads of the cluster meet
// before anyone reads, and after all have read: producers too, in meet().
__device__ __forceinline__ void store(const GammaFfmaParams& p, GammaFfmaShared& shared,
                                      const GammaWorkTile& work, int pass, bool added, int sharers) {
  if constexpr (SPLIT_K > 1) {
    if (sharers > 1) {
      cluster_sync();
      store_share<SPLIT_K>(p, shared, work, pass, added);
      cluster_sync();
      return;
    }
  }
  store_share<1>(p, shared, work, pass, added);
}
