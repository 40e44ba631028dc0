// Fragments of the filter: B of mma.sync, block-diagonal where a bundle has several groups.
#pragma once

#include "patches.cuh"

// The pair of lane 4g + q: what output channel 8n + g of the warp has for channels 2q and 2q + 1 of a
// chunk of its bundle; ``first``: the warp's first output channel. PAIRS: both are read at once. Where
// there is nothing the filter's first element is read, so that no load waits for a branch.
template <bool PAIRS>
__device__ __forceinline__ unsigned filter_pair(const GroupedParams& p, const GroupedChunks& chunks,
                                                int first, int n, int chunk) {
  const int lane = threadIdx.x % 32, m = n % OUT * 8 + lane / 4, c = chunk % IN * 8 + lane % 4 * 2;
  const int group = (first + n / OUT * (8 * OUT)) / OUT_CHANNELS + m / OUT_CHANNELS;
  const Element* from =
      p.w + group * p.group_stride + m % OUT_CHANNELS * p.m_stride + chunks.filter[chunk];
  const bool any = (chunks.at[chunk] >= 0) & (first + n * 8 < p.out_channels);
  bool there[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) there[e] = any & ((c + e) / CHANNELS == m / OUT_CHANNELS);
  if constexpr (PAIRS) {
    const unsigned pair =
        __ldg(reinterpret_cast<const unsigned*>(there[0] ? from + c % CHANNELS : p.w));
    return there[0] ? pair : 0;
  } else {
    unsigned pair = 0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const unsigned one = __ldg(there[e] ? from + (c + e) % CHANNELS * p.c_stride : p.w);
      pair |= there[e] ? one << 16 * e : 0;
    }
    return pair;
  }
}

// A warp's fragments in shared memory, which warps of other positions have too; KEPT: they lie there, in
// the second stage, until the first copies of it start, and in registers for the block's life.
struct GroupedFilter {
  uint2* shared;
  unsigned kept[KEPT ? STEPS : 1][NT][2];
  __device__ __forceinline__ GroupedFilter(unsigned char* memory, int warp_column)
      : shared(reinterpret_cast<uint2*>(memory) + warp_column * (STEPS * NT * 32) + threadIdx.x % 32) {}
  __device__ __forceinline__ void fill(const GroupedParams& p, const GroupedChunks& chunks, int first,
                                       int warp_row) {
    if (CHANNELS % 2 == 0 && p.pairs)
      fill<CHANNELS % 2 == 0>(p, chunks, first, warp_row);
    else
      fill<false>(p, chunks, first, warp_row);
    if constexpr (!KEPT) return;
    __syncthreads();
#pragma unroll
    for (int step = 0; step < (KEPT ? STEPS : 1); ++step) read(step, kept[step]);
  }
  // Memory answers loads of a BATCH of fragments together: none of them waits until others are stored.
  template <bool PAIRS>
  __device__ __forceinline__ void fill(const GroupedParams& p, const GroupedChunks& chunks, int first,
                                       int warp_row) {
    constexpr int BATCH = 8;
#pragma unroll 1
    for (int i = warp_row; i < STEPS * NT; i += BATCH * WARP_ROWS) {
      uint2 two[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; ++j) {
        const int at = min(i + j * WARP_ROWS, STEPS * NT - 1), step = at / NT, n = at % NT;
        two[j] = make_uint2(filter_pair<PAIRS>(p, chunks, first, n, 2 * step),
                            filter_pair<PAIRS>(p, chunks, first, n, 2 * step + 1));
      }
#pragma unroll
      for (int j = 0; j < BATCH; ++j)
        if (i + j * WARP_ROWS < STEPS * NT) shared[(i + j * WARP_ROWS) * 32] = two[j];
    }
  }
  __device__ __forceinline__ void read(int step, unsigned (&to)[NT][2]) const {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const uint2 two = shared[(step * NT + n) * 32];
      to[n][0] = two.x, to[n][1] = two.y;
    }
  }
  __device__ __forceinline__ void take(int step, unsigned (&to)[NT][2]) const {
    if constexpr (!KEPT) return read(step, to);
#pragma unroll
    for (int n = 0; n < NT; ++n) to[n][0] = kept[KEPT ? step : 0][n][0], to[n][1] = kept[KEPT ? step : 0][n][1];
  }
};
