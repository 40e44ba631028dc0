// What all kernels of depthwise convolution are told, and how they read and write V channels at once.
#pragma once

#include "elements.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "pipeline.cuh"

// In a correlation's terms: backward data has dy in x's place and dx in y's. Strides are in elements.
struct DepthwiseParams {
  const Element* x;
  const Element* other;  // w, or dy of filter gradients
  Out* result;           // y, or dw
  float* buckets;        // [share][output channel][tap], of filter gradients in several shares
  long long x_batch, x_depth, x_row;
  long long y_batch, y_depth, y_row;
  long long w_out, w_depth, w_row, w_tap;
  int x_pixel, y_pixel;
  int batch, depth, height, width;       // of x
  int out_depth, out_height, out_width;  // of y
  int pad_depth, pad_height, pad_width;  // from x's first element back to what y's first tap meets
  int stride_depth, stride_height, stride_width;
  int dilation_depth, dilation_height, dilation_width;
  int taps_depth, taps_height, taps_width;
  int channels, multiplier;  // of y; y's of one of x, or, of backward data, x's of one of y
  int phases_height, phases_width;  // every so many-th output is of one phase, taps alike
  int first_height, first_width;    // of strided backward data: the first row and column of dy
  int tiles_height;                 // and how many rows of dy have a window in dx
  int strips, segments, rows;       // of a phase: strips of a row, and segments of so many rows
  int dense;                        // whether w has no gaps; if read, begins where vectors do
  int chunks, work_tiles, shares;  // blocks of channels, threads' worths of outputs, shares of a sum
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int CHANNELS = LANES * V, SLOTS = THREADS / LANES;  // of a block

// Joins the threads that compute: THREADS of a block, which has a producer warp too if it has STAGES.
__device__ __forceinline__ void threads_sync() {
  if constexpr (STAGES > 0)
    consumers_sync<THREADS>();
  else
    __syncthreads();
}

template <int BYTES>
struct Words;
template <>
struct Words<2> {
  using type = unsigned short;
};
template <>
struct Words<4> {
  using type = unsigned;
};
template <>
struct Words<8> {
  using type = uint2;
};
template <>
struct Words<16> {
  using type = uint4;
};
using RawChannels = Words<V * (INPUT ? 2 : 4)>::type;  // V channels as they lie

__device__ __forceinline__ unsigned word(unsigned short raw, int) { return raw; }
__device__ __forceinline__ unsigned word(unsigned raw, int) { return raw; }
__device__ __forceinline__ unsigned word(uint2 raw, int i) { return i ? raw.y : raw.x; }
__device__ __forceinline__ unsigned word(uint4 raw, int i) {
  return i & 2 ? (i & 1 ? raw.w : raw.z) : (i & 1 ? raw.y : raw.x);
}
__device__ __forceinline__ void clear(unsigned short& raw) { raw = 0; }
__device__ __forceinline__ void clear(unsigned& raw) { raw = 0; }
__device__ __forceinline__ void clear(uint2& raw) { raw = make_uint2(0, 0); }
__device__ __forceinline__ void clear(uint4& raw) { raw = make_uint4(0, 0, 0, 0); }

__device__ __forceinline__ RawChannels load(const Element* from) {
  return __ldg(reinterpret_cast<const RawChannels*>(from));
}

__device__ __forceinline__ void widen(const RawChannels& raw, float (&to)[V]) {
  if constexpr (INPUT == 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) to[v] = __uint_as_float(word(raw, v));
  } else if constexpr (V == 1) {
    float none;
    unpack<INPUT == 2>(word(raw, 0), to[0], none);
  } else {
#pragma unroll
    for (int v = 0; v + 1 < V; v += 2) unpack<INPUT == 2>(word(raw, v / 2), to[v], to[v + 1]);
  }
}

__device__ __forceinline__ void store(Out* to, const float (&sum)[V]) {
  if constexpr (V == 1) {
    store_sum(to, sum[0]);
  } else {
    unsigned words[V];
    constexpr int COUNT = OUTPUT ? V / 2 : V;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      words[i] = OUTPUT ? pack<OUTPUT == 2>(sum[i * V / COUNT], sum[(i + 1) * V / COUNT - 1])
                        : __float_as_uint(sum[i]);
    if constexpr (COUNT == 1)
      *reinterpret_cast<unsigned*>(to) = words[0];
    else if constexpr (COUNT == 2)
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    else
#pragma unroll
      for (int i = 0; i + 3 < COUNT; i += 4)
        reinterpret_cast<uint4*>(to)[i / 4] =
            make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
  }
}

// Stores the columns of a row from ``begin`` to ``end``: all together where they are, since the compiler
// otherwise moves each column's sums into its branch, one long chain after the other.
template <int COUNT>
__device__ __forceinline__ void store_columns(Out* to, int pitch, const float (&sum)[COUNT][V],
                                              int begin, int end) {
  if (begin <= 0 && end >= COUNT) {
#pragma unroll
    for (int t = 0; t < COUNT; ++t) {
      store(to, sum[t]);
      to += pitch;
    }
  } else {
#pragma unroll
    for (int t = 0; t < COUNT; ++t) {
      if (t >= begin && t < end) store(to, sum[t]);
      to += pitch;
    }
  }
}

#ifdef EPILOGUE
// What follows the sums of a row's columns from 0 to ``there``.
template <int COUNT>
__device__ __forceinline__ void finish_columns(const DepthwiseParams& p, const Out* to, int pitch,
                                               float (&sum)[COUNT][V], int there) {
  const int channel = blockIdx.x % p.chunks * CHANNELS + threadIdx.x % LANES * V;
#pragma unroll
  for (int t = 0; t < COUNT; ++t)
    if (t < there)
      finish_channels<V, true>(p.epilogue, sum[t], to + (long long)t * pitch, p.result, channel);
}
#endif

__device__ __forceinline__ float value(const Element* from) {
  if constexpr (INPUT == 0) {
    return *from;
  } else {
    float first, none;
    unpack<INPUT == 2>(*from, first, none);
    return first;
  }
}

// Where a thread's outputs are.
struct ThreadTile {
  int image, depth, phase_height, segment, phase_width, strip;

  __device__ __forceinline__ ThreadTile(const DepthwiseParams& p, unsigned index) {
    strip = taken(index, p.strips);
    phase_width = taken(index, p.phases_width);
    segment = taken(index, p.segments);
    phase_height = taken(index, p.phases_height);
    depth = taken(index, p.out_depth);
    image = index;
  }

  // index mod count, index becomes the quotient; no division where all threads know that count is 1.
  static __device__ __forceinline__ int taken(unsigned& index, unsigned count) {
    if (count == 1) return 0;
    const unsigned quotient = index / count, rest = index - quotient * count;
    index = quotient;
    return rest;
  }
};
