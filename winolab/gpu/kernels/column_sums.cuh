// Of direct filter gradients by columns: where a thread's sums go. ``Finished`` makes results of them.

// A run of a thread's sums, from the first on, to dw.
template <int COUNT>
__device__ __forceinline__ void store(const SumParams& params, const Item& item, int thread,
                                      int first, const float (&sums)[COUNT]) {
  const OmegaParams& p = params.sum;
  const Finished finished(params);
  const int group_m = thread / 128 % GROUPS_M, tap0 = thread / 128 / GROUPS_M * GROUP_TAPS;
  const int out = item.out + group_m * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
  Out* const dw = p.dw + (item.group * p.out_channels + out) * p.dw_out +
                  item.tap_depth * p.dw_depth + item.tap_height * p.dw_row +
                  item.tap_width * p.dw_tap + item.in * p.dw_in;
#pragma unroll
  for (int j = 0; j < COUNT; j += 2) {
    const int i = first + j, column = i / 4 * 8 + thread % 4 * 2, down = i / 2 % 2 * 8;
    const int tap = tap0 + column / BI, in = column % BI, ins = p.channels - item.in - in;
    if (out + down >= p.out_channels || item.tap_width + tap >= p.taps_width) continue;
    Out* const to = dw + down * p.dw_out + tap * p.dw_tap + in * p.dw_in;
    if (ins > 0) store_sum(to, finished(sums[j]));
    if (ins > 1) store_sum(to + p.dw_in, finished(sums[j + 1]));
  }
}

// What a block has of an item: the result, or a part of the sum for winolab_omega_gather.
__device__ __forceinline__ void finish(const SumParams& params, const Work& work,
                                       const float (&acc)[WIDTH / 2]) {
  if (threadIdx.x == 0) work.tell(params);
  if (work.whole()) return store(params, item_of(params.sum, work.item), threadIdx.x, 0, acc);
  float* const part = params.sum.buckets + work.slot(params) * (WIDTH / 2 * RESULTS) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < WIDTH / 2; ++i) part[i * RESULTS] = acc[i];
}
