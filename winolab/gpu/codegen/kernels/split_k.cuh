// dW: the compensated sum (Kahan 1965) of the segments' buckets, in FP32 and in their order.
//
// gridDim.y threads, a power of two, add up an equal part of an element's buckets each, in their order;
// the first of them adds up what they have, in the same order.
// FIRST: dw holds the first segment's sum already. ``Out`` is dw's type and ``store_sum`` writes it.
#pragma once

#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "fallback.cuh"
#include "pipeline.cuh"

struct ReduceParams {
  const float* buckets;  // [bucket][output channel][depth][height][width][input channel], dense
  Out* dw;
  long long dw_out, dw_depth, dw_row, dw_tap, dw_in;  // strides in elements
  int out_channels, taps_depth, taps_height, taps_width, channels;  // of dw
  int count;                                                        // of buckets
  int dense;  // whether dw lies as buckets do
  const int* wanted;
#ifdef EPILOGUE
  EpilogueParams epilogue;  // of y, whose channels are the last dimension
#endif
};

constexpr int REDUCE_THREADS = 256, REDUCE_AHEAD = 8;  // buckets loaded at once

// Where an element of a bucket lies in dw, and its channel.
struct ReducedPlace {
  Out* dw;
  int in;
};

// Without a division where dw is dense; an epilogue asks for the channel.
__device__ __forceinline__ ReducedPlace place_of(const ReduceParams& p, long long element) {
  if (p.dense) {
    int in = 0;
#ifdef EPILOGUE
    in = (int)(element % p.channels);
#endif
    return {p.dw + element, in};
  }
  long long rest = element;
  const int in = (int)(rest % p.channels);
  rest /= p.channels;
  const int tap = (int)(rest % p.taps_width);
  rest /= p.taps_width;
  const int row = (int)(rest % p.taps_height);
  rest /= p.taps_height;
  const int depth = (int)(rest % p.taps_depth), out = (int)(rest / p.taps_depth);
  return {p.dw + out * p.dw_out + depth * p.dw_depth + row * p.dw_row + tap * p.dw_tap + in * p.dw_in,
          in};
}

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
    winolab_reduce(const __grid_constant__ ReduceParams p) {
  const long long size = (long long)p.out_channels * p.taps_depth * p.taps_height * p.taps_width *
                         p.channels;
  const int parts = gridDim.y, shift = 31 - __clz(parts), elements = REDUCE_THREADS >> shift;
  const int part = (int)(threadIdx.x << shift) / REDUCE_THREADS;
  const long long element = ((long long)blockIdx.x * parts + blockIdx.y) * elements +
                            (threadIdx.x & (elements - 1));
  const bool there = element < size;
  launch_before_done();
  if (!wanted(p.wanted)) return;
  if (parts == 1 && !there) return;
  float sum = 0.0f, lost = 0.0f;
  const auto add = [&](float value) {
    const float term = __fsub_rn(value, lost), total = __fadd_rn(sum, term);
    const float rest = __fsub_rn(__fsub_rn(total, sum), term);
    lost = rest - rest == 0.0f ? rest : 0.0f;  // an infinite sum has lost nothing
    sum = total;
  };
  if constexpr (FIRST)
    if (there && part == 0) sum = (float)*place_of(p, element).dw;
  const int end = (int)((long long)p.count * (part + 1) >> shift);
  const float* bucket = p.buckets + element;
  for (int first = (int)((long long)p.count * part >> shift); first < end; first += REDUCE_AHEAD) {
    float value[REDUCE_AHEAD];
#pragma unroll
    for (int b = 0; b < REDUCE_AHEAD; ++b)
      value[b] = there && first + b < end ? __ldg(bucket + (first + b) * size) : 0.0f;
#pragma unroll
    for (int b = 0; b < REDUCE_AHEAD; ++b) add(value[b]);
  }
  if (parts > 1) {
    __shared__ float others[2][REDUCE_THREADS];  // sums and what they lost
    others[0][threadIdx.x] = sum, others[1][threadIdx.x] = lost;
    __syncthreads();
    if (part > 0 || !there) return;
    for (int other = threadIdx.x + elements; other < REDUCE_THREADS; other += elements) {
      add(others[0][other]);
      lost = __fadd_rn(lost, others[1][other]);
    }
  }
  const ReducedPlace to = place_of(p, element);
#ifdef EPILOGUE
  sum = finish_channel(p.epilogue, sum, to.dw, p.dw, to.in);
#endif
  store_sum(to.dw, sum);
}
