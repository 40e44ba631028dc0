// dW: the compensated sums (Kahan 1965) of the shares of work tiles that several blocks have.
//
// gridDim.y warps of a block, a power of two, add up an equal part of the shares each, in the order of
// the sum (column_sweep.cuh); the first of them adds up what they have, in the same order.
#pragma once

#include "column_sums.cuh"
#include "pipeline.cuh"

// Shares that a thread loads before it adds them, so that it waits for memory once: one after another
// 56 took 24 us, 14 took 8 (docs/notes/064-filters-of-one-tap.md). With eight of them a thread had 229
// registers and a multiprocessor one block; most work tiles have two or three shares.
constexpr int GATHER_AHEAD = 8;
constexpr int GATHER_BLOCKS = 2;  // of a multiprocessor
constexpr int GATHER_WARPS = RESULTS / 32;

// Sums of RUN numbers a lane, and what their roundings lost.
struct Compensated {
  float sums[RUN] = {}, lost[RUN] = {};
  __device__ __forceinline__ void add(int i, float value) {
    const float term = __fsub_rn(value, lost[i]);
    const float total = __fadd_rn(sums[i], term);
    lost[i] = __fsub_rn(__fsub_rn(total, sums[i]), term);
    sums[i] = total;
  }
};

// The blocks that have shares of a work tile, one behind another.
struct Sharers {
  int first, count;
};

// Who shares a work tile, found by all threads: where every block begins says who has which.
__device__ __forceinline__ Sharers sharers_of(const ColumnParams& p, int shared) {
  const int tile = (int)p.alone + shared, sharing = (int)p.sharing, splits = (int)p.splits;
  if (splits) return {shared * splits, splits};
  bool before = false, begun = false;  // a block's shares end before the tile; begin before its end
  if (threadIdx.x < sharing) {
    const int next = threadIdx.x + 1;
    begun = p.starts[threadIdx.x].tile <= tile;
    before = next < sharing && (p.starts[next].tile < tile ||
                                (p.starts[next].tile == tile && p.starts[next].at == 0));
  }
  const int first = __syncthreads_count(before);
  return {first, __syncthreads_count(begun) - first};
}

extern "C" __global__ void __launch_bounds__(RESULTS, GATHER_BLOCKS)
    winolab_wgrad_direct_gather(const __grid_constant__ SumParams p) {
  static_assert(STARTS <= RESULTS, "a thread looks at a block's start");
  __shared__ float others[2][RUN][RESULTS];  // sums and what they lost, of all warps but the first
  __shared__ GradientWorkTile work;
  next_launch_may_begin();
  const int shared = blockIdx.x / (WIDTH / 2 / RUN), run = blockIdx.x % (WIDTH / 2 / RUN) * RUN;
  const auto [first, count] = sharers_of(p, shared);
  if (threadIdx.x == 0) work = work_of(p.sum, (int)p.alone + shared);
  const int warps = gridDim.y, warp = threadIdx.x / 32, part = warp % warps;
  const int thread = (blockIdx.y * GATHER_WARPS + warp) / warps * 32 + threadIdx.x % 32;
  const int begin = count * part / warps, end = count * (part + 1) / warps;
  __syncthreads();
  launch_before_done();
  if (count == 1) return;
  Compensated found;
  const float* partial = p.sum.buckets + (shared + (long long)first + begin) * (WIDTH / 2 * RESULTS) +
                         run * RESULTS + thread;
#pragma unroll 1
  for (int share = begin; share < end; share += GATHER_AHEAD) {
    float parts[GATHER_AHEAD][RUN];
#pragma unroll
    for (int b = 0; b < GATHER_AHEAD; ++b) {
      const float* const from = partial + min(b, end - 1 - share) * (WIDTH / 2 * RESULTS);
#pragma unroll
      for (int i = 0; i < RUN; ++i) parts[b][i] = __ldg(from + i * RESULTS);
    }
    partial += GATHER_AHEAD * (WIDTH / 2 * RESULTS);
#pragma unroll
    for (int b = 0; b < GATHER_AHEAD; ++b)
      if (share + b < end)
#pragma unroll
        for (int i = 0; i < RUN; ++i) found.add(i, parts[b][i]);
  }
  if (warps > 1) {
    if (part > 0)
#pragma unroll
      for (int i = 0; i < RUN; ++i)
        others[0][i][threadIdx.x] = found.sums[i], others[1][i][threadIdx.x] = found.lost[i];
    __syncthreads();
    if (part > 0) return;
#pragma unroll 1
    for (int other = threadIdx.x + 32; other < threadIdx.x + 32 * warps; other += 32)
#pragma unroll
      for (int i = 0; i < RUN; ++i) {
        found.add(i, others[0][i][other]);
        found.lost[i] = __fadd_rn(found.lost[i], others[1][i][other]);
      }
  }
  store(p, work, thread, run, found.sums);
}
