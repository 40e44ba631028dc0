// dW: the compensated sums (Kahan 1965) of the shares of work tiles that several blocks have.
//
// gridDim.y warps of a block, a power of two, add up an equal part of the shares each, in the order of
// the sum (column_sweep.cuh); the first of them adds up what they have, in the same order.
#pragma once

#include "column_sums.cuh"
#include "pipeline.cuh"

// Shares that a thread loads before it adds them, so that it waits for memory once: one after another
// 56 took 24 us, 14 took 8 (docs/notes/064-filters-of-one-tap.md).
constexpr int GATHER_AHEAD = 8;
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

extern "C" __global__ void __launch_bounds__(RESULTS)
    winolab_wgrad_direct_gather(const __grid_constant__ SumParams p) {
  __shared__ float others[2][RUN][RESULTS];  // sums and what they lost, of all warps but the first
  launch_before_done();
  const int shared = blockIdx.x / (WIDTH / 2 / RUN), run = blockIdx.x % (WIDTH / 2 / RUN) * RUN;
  const int first = p.ends[2 * shared], count = p.ends[2 * shared + 1] - first + 1;
  if (count == 1) return;
  const int warps = gridDim.y, warp = threadIdx.x / 32, part = warp % warps;
  const int thread = (blockIdx.y * GATHER_WARPS + warp) / warps * 32 + threadIdx.x % 32;
  const int begin = count * part / warps, end = count * (part + 1) / warps;
  Compensated found;
  const float* partial = p.sum.buckets + (shared + (long long)first + begin) * (WIDTH / 2 * RESULTS) +
                         run * RESULTS + thread;
  for (int share = begin; share < end; share += GATHER_AHEAD) {
    float parts[GATHER_AHEAD][RUN];
#pragma unroll
    for (int b = 0; b < GATHER_AHEAD; ++b, partial += WIDTH / 2 * RESULTS)
#pragma unroll
      for (int i = 0; i < RUN; ++i)
        parts[b][i] = share + b < end ? __ldg(partial + i * RESULTS) : 0.0f;
#pragma unroll
    for (int b = 0; b < GATHER_AHEAD; ++b) {
      if (share + b >= end) break;
#pragma unroll
      for (int i = 0; i < RUN; ++i) found.add(i, parts[b][i]);
    }
  }
  if (warps > 1) {
    if (part > 0)
#pragma unroll
      for (int i = 0; i < RUN; ++i)
        others[0][i][threadIdx.x] = found.sums[i], others[1][i][threadIdx.x] = found.lost[i];
    __syncthreads();
    if (part > 0) return;
    for (int other = threadIdx.x + 32; other < threadIdx.x + 32 * warps; other += 32)
#pragma unroll
      for (int i = 0; i < RUN; ++i) {
        found.add(i, others[0][i][other]);
        found.lost[i] = __fadd_rn(found.lost[i], others[1][i][other]);
      }
  }
  store(p, work_of(p.sum, (int)p.alone + shared), thread, run, found.sums);
}
