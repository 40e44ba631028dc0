// Forward, and backward data of unit stride (ROTATED), of few outputs: a thread has V channels of TW
// neighbouring columns of y. It asks for all that it reads of x and for its part of the block's filters
// before it waits, once. Sums are in rows.cuh's order: filter rows, planes, columns, one after the other.
#pragma once

#include "filters.cuh"

constexpr int ROWS = KD * KH, COLS = (TW - 1) * SW + KW;  // of x that TW outputs meet

// As DepthwiseParams, as few as it takes.
struct DepthwisePlainParams {
  const Element* x;
  const Element* other;  // w
  Out* y;
  long long x_batch, x_depth, x_row;
  long long y_batch, y_depth, y_row;
  int x_pixel, y_pixel;  // x's in bytes
  int depth, height, width;
  int out_depth, out_height, out_width;
  int pad_depth, pad_height, pad_width;
  int stride_depth;
  int dilation_depth, dilation_height, dilation_width;  // the last is 1 if TW is not
  int channels, strips;
  int of_strips, of_depth;  // reciprocals, as quotient() takes them
  int dense;                // whether w has no gaps, and begins where vectors do
  long long w_out, w_depth, w_row, w_tap;
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

// n / d of d's reciprocal ⌈2^30 / d⌉, where n d < 2^30.
__device__ __forceinline__ int quotient(unsigned n, unsigned reciprocal) {
  return (int)((unsigned long long)n * reciprocal >> 30);
}

__device__ __forceinline__ int within(int place, int size) { return max(0, min(place, size - 1)); }

// All bits where a place is one of ``size``, else none.
__device__ __forceinline__ unsigned inside(int place, int size) {
  return ~((place | (size - 1 - place)) >> 31);
}

__device__ __forceinline__ void keep(unsigned short& raw, unsigned bits) { raw &= bits; }
__device__ __forceinline__ void keep(unsigned& raw, unsigned bits) { raw &= bits; }
__device__ __forceinline__ void keep(uint2& raw, unsigned bits) { raw.x &= bits, raw.y &= bits; }
__device__ __forceinline__ void keep(uint4& raw, unsigned bits) {
  raw.x &= bits, raw.y &= bits, raw.z &= bits, raw.w &= bits;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_plain(const __grid_constant__ DepthwisePlainParams p) {
  __shared__ __align__(16) Element filters[UNITS * V];
  const int first = blockIdx.x * CHANNELS, c = first + threadIdx.x % LANES * V;
  const FiltersOnTheirWay<DepthwisePlainParams> on_their_way(p, first);
  const unsigned number = blockIdx.y * SLOTS + threadIdx.x / LANES;
  const int row = quotient(number, p.of_strips);
  const int column = (number - row * p.strips) * TW;
  const int image = quotient(blockIdx.z, p.of_depth), plane = blockIdx.z - image * p.out_depth;
  // Rows and columns that x does not have are read in its nearest ones' place, and count as zeros.
  const int left = column * SW - p.pad_width;
  const Element* x = p.x + image * p.x_batch + min(c, p.channels - V);
  long long to[COLS];  // bytes
  unsigned of_column[COLS], of_row[ROWS];
#pragma unroll
  for (int k = 0; k < COLS; ++k) {
    const int at = left + k * p.dilation_width;
    to[k] = (long long)within(at, p.width) * p.x_pixel;
    of_column[k] = inside(at, p.width);
  }
  RawChannels raw[ROWS][COLS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int h = row * SH - p.pad_height + r / KD * p.dilation_height;
    const int d = plane * p.stride_depth - p.pad_depth + r % KD * p.dilation_depth;
    of_row[r] = inside(h, p.height) & inside(d, p.depth);
    const char* from = reinterpret_cast<const char*>(x + within(d, p.depth) * p.x_depth +
                                                     within(h, p.height) * p.x_row);
#pragma unroll
    for (int k = 0; k < COLS; ++k) raw[r][k] = load(reinterpret_cast<const Element*>(from + to[k]));
  }

  on_their_way.store(filters);
  __syncthreads();
  if (c >= p.channels || row >= p.out_height) return;

  float w[TAPS][V];
  read_filters(filters, w);
  float sum[TW][V] = {};
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    float read[COLS][V];
#pragma unroll
    for (int k = 0; k < COLS; ++k) {
      keep(raw[r][k], of_row[r] & of_column[k]);
      widen(raw[r][k], read[k]);
    }
#pragma unroll
    for (int kw = 0; kw < KW; ++kw) {
      const int tap = (r % KD * KH + r / KD) * KW + kw;
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v)
          sum[t][v] = __fmaf_rn(read[t * SW + kw][v], w[tap][v], sum[t][v]);
    }
  }

  Out* y = p.y + image * p.y_batch + plane * p.y_depth + row * p.y_row +
           (long long)column * p.y_pixel + c;
  const int end = min(TW, p.out_width - column);
#ifdef EPILOGUE
#pragma unroll
  for (int t = 0; t < TW; ++t)
    if (t < end)
      finish_channels<V, true>(p.epilogue, sum[t], y + (long long)t * p.y_pixel, p.y, c);
#endif
  store_columns(y, p.y_pixel, sum, 0, end);
}
