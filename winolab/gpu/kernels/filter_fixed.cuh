// The transformed filter (filter_tensor.cuh) of 16 bits. A block has 128 threads, an outer tap and
// FILTER_CHUNKS chunks of FILTER_M outputs.

extern "C" __global__ void __launch_bounds__(128)
    winolab_filter(const __grid_constant__ FilterParams p) {
  next_launch_may_begin();
  const FilterPair pair(p, threadIdx.x, blockIdx.x);
  const FilterTap tap(p, blockIdx.z);
  const int chunk = blockIdx.y * FILTER_CHUNKS;
  Element raw[FILTER_CHUNKS][2][R];  // early: no launch of the call writes w
#pragma unroll
  for (int i = 0; i < FILTER_CHUNKS; ++i) read_taps(p, pair, tap, chunk + i, raw[i]);
  launch_before_done();
#pragma unroll
  for (int i = 0; i < FILTER_CHUNKS; ++i)
    if (chunk + i < p.chunks) write_states(p, pair, tap, chunk + i, raw[i], FIXED_FILTER);
}
