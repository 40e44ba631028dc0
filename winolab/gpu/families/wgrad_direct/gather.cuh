// dW: the compensated sums (Kahan 1965) of the shares of work tiles that several blocks have, in
// the order of the sum (column_sweep.cuh).
#pragma once

#include "column_sums.cuh"
#include "pipeline.cuh"

extern "C" __global__ void __launch_bounds__(RESULTS)
    winolab_wgrad_direct_gather(const __grid_constant__ SumParams p) {
  launch_before_done();
  const int shared = blockIdx.x / (WIDTH / 2 / RUN), run = blockIdx.x % (WIDTH / 2 / RUN) * RUN;
  const int first = p.ends[2 * shared], last = p.ends[2 * shared + 1];
  if (first == last) return;
  float sums[RUN] = {}, lost[RUN] = {};
  const float* partial = p.sum.buckets + (shared + (long long)first) * (WIDTH / 2 * RESULTS) +
                      run * RESULTS + threadIdx.x;
#pragma unroll 4
  for (int block = first; block <= last; ++block, partial += WIDTH / 2 * RESULTS) {
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
      const float term = __fsub_rn(__ldg(partial + i * RESULTS), lost[i]);
      const float total = __fadd_rn(sums[i], term);
      lost[i] = __fsub_rn(__fsub_rn(total, sums[i]), term);
      sums[i] = total;
    }
  }
  store(p, work_of(p.sum, (int)p.alone + shared), threadIdx.x, run, sums);
}
