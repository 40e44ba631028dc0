// dW: the compensated sums (Kahan 1965) of the shares of work tiles that several blocks have, in
// the order of the sum (column_sweep.cuh).
#pragma once

#include "column_sums.cuh"
#include "pipeline.cuh"

// Parts that a thread loads before it adds them, so that it waits for memory once: one after another
// 56 parts took 24 us, 14 took 8 (docs/notes/064-filters-of-one-tap.md).
constexpr int GATHER_AHEAD = 8;

extern "C" __global__ void __launch_bounds__(RESULTS)
    winolab_wgrad_direct_gather(const __grid_constant__ SumParams p) {
  launch_before_done();
  const int shared = blockIdx.x / (WIDTH / 2 / RUN), run = blockIdx.x % (WIDTH / 2 / RUN) * RUN;
  const int first = p.ends[2 * shared], last = p.ends[2 * shared + 1];
  if (first == last) return;
  float sums[RUN] = {}, lost[RUN] = {};
  const float* partial = p.sum.buckets + (shared + (long long)first) * (WIDTH / 2 * RESULTS) +
                      run * RESULTS + threadIdx.x;
  for (int block = first; block <= last; block += GATHER_AHEAD) {
    float parts[GATHER_AHEAD][RUN];
#pragma unroll
    for (int b = 0; b < GATHER_AHEAD; ++b, partial += WIDTH / 2 * RESULTS)
#pragma unroll
      for (int i = 0; i < RUN; ++i)
        parts[b][i] = block + b <= last ? __ldg(partial + i * RESULTS) : 0.0f;
#pragma unroll
    for (int b = 0; b < GATHER_AHEAD; ++b) {
      if (block + b > last) break;
#pragma unroll
      for (int i = 0; i < RUN; ++i) {
        const float term = __fsub_rn(parts[b][i], lost[i]);
        const float total = __fadd_rn(sums[i], term);
        lost[i] = __fsub_rn(__fsub_rn(total, sums[i]), term);
        sums[i] = total;
      }
    }
  }
  store(p, work_of(p.sum, (int)p.alone + shared), threadIdx.x, run, sums);
}
