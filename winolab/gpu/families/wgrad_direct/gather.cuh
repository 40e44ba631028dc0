// dW: the compensated sums of the shares of work tiles that several blocks have.
//
// gridDim.y warps of a block, a power of two, add up an equal part of the shares each, in the order of
// the sum (column_sweep.cuh); the first of them adds up what they have, in the same order.
#pragma once

#include "column_sums.cuh"
#include "pipeline.cuh"

constexpr int GATHER_WARPS = RESULTS / 32;

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
  const float* const partial =
      p.sum.buckets + (shared + (long long)first) * (WIDTH / 2 * RESULTS) + run * RESULTS + thread;
  found.add_shares<GATHER_AHEAD>(
      begin, end, [&](int share) { return partial + share * (WIDTH / 2 * RESULTS); });
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
