// Sums of products of every tap: products stand by position and tap, as a filter of one tap made them of
// all taps' rows, and a result is the sum of its taps' products, each at another position.
//
// Columns of a position's products go by tap of the depth, each a chunk of FOLD_CHUNK; in a chunk by tap of
// the height and of the width, then by the result's channel. What fills a chunk up repeats its first rows,
// and what is behind the last chunk the first one's: zeros would be results that look lost to who checks them.
#pragma once

#include "either.cuh"
#include "elements.cuh"
#include "quotient.cuh"

using FoldElement = Either<FOLD_SIZE == 4, unsigned, unsigned short>::type;  // of the filter
constexpr int FOLD_THREADS = 256;
constexpr int FOLD_PITCH = FOLD_CHUNK + 1;  // in shared memory: odd, so that neighbours meet other banks
constexpr int FOLD_QUADS = FOLD_CHUNK / 4;
static_assert(FOLD_ROWS * FOLD_COLUMNS == FOLD_THREADS);

struct FoldFilterParams {
  const FoldElement* w;
  FoldElement* rows;  // dense: of a forward pass columns × channels, else output channels × columns
  long long m_stride, depth_stride, height_stride, width_stride, c_stride;
  int count, depth, height, width, few;  // elements of rows; taps; the result's channels
  Quotient by_inner;                     // channels, or columns
  int rotated;                           // whether of backward data
};

extern "C" __global__ void __launch_bounds__(FOLD_THREADS)
    winolab_fold_filter(const __grid_constant__ FoldFilterParams p) {
  const int at = blockIdx.x * FOLD_THREADS + threadIdx.x;
  if (at >= p.count) return;
  int inner;
  const int outer = divide(p.by_inner, at, inner);
  const int column = p.rotated ? inner : outer, other = p.rotated ? outer : inner;
  const int level = column / FOLD_CHUNK % p.depth, of_level = p.height * p.width * p.few;
  const int within = column % FOLD_CHUNK % of_level, tap = within / p.few, few = within % p.few;
  const int m = p.rotated ? other : few, c = p.rotated ? few : other;
  p.rows[at] = p.w[m * p.m_stride + level * p.depth_stride + tap / p.width * p.height_stride +
                   tap % p.width * p.width_stride + c * p.c_stride];
}

// A dimension: positions of products and of results, taps.
struct FoldAxis {
  int size, results, taps, pad, stride, dilation;
};

// In a correlation's terms; backward data has dy's positions for the products'.
struct FoldParams {
  const float* z;
  Out* y;
  long long z_batch, z_depth, z_row, y_batch, y_depth, y_row;
  int z_pitch, y_pixel;           // elements from a position to the next
  FoldAxis depth, height, width;
  int span_rows, span_columns;    // positions of a level that a block's results meet
  int few;                        // the result's channels, FOLD_FEW at most
  Quotient by_across, by_down, by_levels;  // blocks along a row, rows of blocks, levels of y
  Quotient by_span;               // span_columns
  int rotated;                    // whether of backward data
};

// The position of products that a tap of a result meets, -1 where it is none.
__device__ __forceinline__ int fold_position(const FoldAxis& axis, int rotated, int at, int tap) {
  if (!rotated) return at - axis.pad + tap * axis.dilation;
  const int whole = at + axis.pad - tap * axis.dilation;
  if (axis.stride == 1 || whole < 0) return whole;
  return whole % axis.stride ? -1 : whole / axis.stride;
}

// The first position that any tap of results from that one on may meet, rounded down.
__device__ __forceinline__ int fold_first(const FoldAxis& axis, int rotated, int at) {
  if (!rotated) return at - axis.pad;
  const int least = at + axis.pad - (axis.taps - 1) * axis.dilation;
  return least >= 0 ? least / axis.stride : -((-least + axis.stride - 1) / axis.stride);
}

extern "C" __global__ void __launch_bounds__(FOLD_THREADS)
    winolab_fold(const __grid_constant__ FoldParams p) {
  extern __shared__ float met[];  // span_rows × span_columns positions of a level, a chunk each
  int across, down, level;
  const int image = divide(p.by_levels, divide(p.by_down, divide(p.by_across, blockIdx.x, across), down), level);
  const int first_row = down * FOLD_ROWS, first_column = across * FOLD_COLUMNS;
  const int row = first_row + threadIdx.x / FOLD_COLUMNS, column = first_column + threadIdx.x % FOLD_COLUMNS;
  const int top = fold_first(p.height, p.rotated, first_row);
  const int left = fold_first(p.width, p.rotated, first_column);
  float sum[FOLD_FEW];
#pragma unroll
  for (int f = 0; f < FOLD_FEW; ++f) sum[f] = 0.0f;
  for (int kd = 0; kd < p.depth.taps; ++kd) {
    const int deep = fold_position(p.depth, p.rotated, level, kd);
    if (deep < 0 || deep >= p.depth.size) continue;
    const float* from = p.z + image * p.z_batch + deep * p.z_depth + kd * FOLD_CHUNK;
    __syncthreads();
    for (int i = threadIdx.x; i < p.span_rows * p.span_columns * FOLD_QUADS; i += FOLD_THREADS) {
      const int position = i / FOLD_QUADS, quad = i % FOLD_QUADS;
      int w;
      const int h = divide(p.by_span, position, w) + top;
      const bool is = h >= 0 && h < p.height.size && w + left >= 0 && w + left < p.width.size;
      float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (is)
        four = __ldg(reinterpret_cast<const float4*>(from + h * p.z_row +
                                                     (long long)(w + left) * p.z_pitch + 4 * quad));
      float* to = met + position * FOLD_PITCH + 4 * quad;
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }
    __syncthreads();
    for (int kh = 0; kh < p.height.taps; ++kh) {
      const int h = fold_position(p.height, p.rotated, row, kh) - top;
      for (int kw = 0; kw < p.width.taps; ++kw) {
        const int w = fold_position(p.width, p.rotated, column, kw) - left;
        if (h < 0 || w < 0 || h >= p.span_rows || w >= p.span_columns) continue;
        const float* of = met + (h * p.span_columns + w) * FOLD_PITCH + (kh * p.width.taps + kw) * p.few;
#pragma unroll
        for (int f = 0; f < FOLD_FEW; ++f)
          if (f < p.few) sum[f] = __fadd_rn(sum[f], of[f]);
      }
    }
  }
  if (row >= p.height.results || column >= p.width.results) return;
  Out* y = p.y + image * p.y_batch + level * p.y_depth + row * p.y_row + (long long)column * p.y_pixel;
#pragma unroll
  for (int f = 0; f < FOLD_FEW; ++f)
    if (f < p.few) store_sum(y + f, sum[f]);
}
