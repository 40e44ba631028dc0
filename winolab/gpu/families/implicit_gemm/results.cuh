// Where the sums of a block go.
#pragma once

#include "operands.cuh"
#include "exchanged.cuh"

// A lane's sums: of each TILE_ROWS rows lane 4g + q has the rows g and g + 8 of its warp's 16, and 2q and
// 2q + 1 of eight columns: an mma.sync has a warp's tile, a wgmma those of four warps below each other.
constexpr int TILE_ROWS = PRODUCERS ? 64 : 16;
constexpr int MT = BLOCK_ROWS * (TILE_ROWS / 16) / WARP_ROWS / TILE_ROWS,
              NT = BLOCK_COLUMNS / WARP_COLUMNS / 8;
typedef float ImplicitSums[MT][NT][4];

struct Warp {
  int lane, m, n;  // its first row and column in the block
  __device__ __forceinline__ Warp() {
    constexpr int TOGETHER = TILE_ROWS / 16;
    const int warp = threadIdx.x / 32, down = warp % WARP_ROWS;
    lane = threadIdx.x % 32;
    m = down / TOGETHER * (MT * TILE_ROWS) + down % TOGETHER * 16, n = warp / WARP_ROWS * (NT * 8);
  }
};

// Results of forward and backward data.
__device__ __forceinline__ void store(const ImplicitParams& p, const ImplicitWork& work,
                                      const WindowPlace* places, const ImplicitSums& acc,
                                      const Warp& at) {
  const int g = at.lane / 4, q = at.lane % 4, first = work.column + at.n;
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const WindowPlace& place = places[at.m + i * TILE_ROWS + r * 8 + g];
      Out* const y = p.y + place.y + (long long)work.group * p.out_channels;
      if constexpr (OUTPUT != 0 && NT % 4 == 0) {
        if (p.y_vector == 8) {
#pragma unroll
          for (int j = 0; j < NT; j += 4) {
            unsigned v[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
              v[e] = pack<OUTPUT == 2>(acc[i][j + e][2 * r], acc[i][j + e][2 * r + 1]);
            const uint4 eight = exchanged(v, at.lane);
            const int n = first + (j + q) * 8;
#ifdef EPILOGUE
            if (place.there && n < work.columns) {
              unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
              finish_pairs(p.epilogue, pairs, y + n, p.y, work.group * p.out_channels + n);
              *reinterpret_cast<uint4*>(y + n) =
                  make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
            }
#else
            if (place.there && n < work.columns) *reinterpret_cast<uint4*>(y + n) = eight;
#endif
          }
          continue;
        }
      }
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const int n = first + j * 8 + q * 2;
        if (!place.there || n >= work.columns) continue;
#ifdef EPILOGUE
        float v[2] = {acc[i][j][2 * r], acc[i][j][2 * r + 1]};
        const int channel = work.group * p.out_channels + n;
        if (p.y_vector > 1)
          finish_channels<2, true>(p.epilogue, v, y + n, p.y, channel);
        else
          finish_channels<2, false>(p.epilogue, v, y + n, p.y, channel, work.columns - n);
#else
        const float v[2] = {acc[i][j][2 * r], acc[i][j][2 * r + 1]};
#endif
        if (p.y_vector > 1) {
          if constexpr (OUTPUT == 0)
            *reinterpret_cast<float2*>(y + n) = make_float2(v[0], v[1]);
          else
            *reinterpret_cast<unsigned*>(y + n) = pack<OUTPUT == 2>(v[0], v[1]);
          continue;
        }
        store_sum(y + n, v[0]);
        if (n + 1 < work.columns) store_sum(y + n + 1, v[1]);
      }
    }
}

// A segment's sums of forward and backward data, in its bucket.
__device__ __forceinline__ void store_segment(const ImplicitParams& p, const ImplicitWork& work,
                                              const ImplicitSums& acc, const Warp& at) {
  const int g = at.lane / 4, q = at.lane % 4, first = work.column + at.n;
  const int columns = p.groups * p.out_channels, positions = ImplicitWork::positions(p);
  float* sums = p.buckets + (long long)work.segment * positions * columns + work.group * p.out_channels;
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int position = work.row + at.m + i * TILE_ROWS + r * 8 + g;
      if (position >= positions) continue;
      float* const row = sums + (long long)position * columns;
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const int n = first + j * 8 + q * 2;
        if (n >= work.columns) continue;
        if (columns % 2 == 0 && p.out_channels % 2 == 0) {
          *reinterpret_cast<float2*>(row + n) = make_float2(acc[i][j][2 * r], acc[i][j][2 * r + 1]);
        } else {
          row[n] = acc[i][j][2 * r];
          if (n + 1 < work.columns) row[n + 1] = acc[i][j][2 * r + 1];
        }
      }
    }
}

// Rows of a gradient ``apart``, whose columns lie side by side: whole vectors, p.y_vector channels each.
template <class To>
__device__ __forceinline__ void store_rows(const ImplicitParams& p, const ImplicitWork& work, To* to,
                                           long long apart, const ImplicitSums& acc, const Warp& at) {
  const int g = at.lane / 4, q = at.lane % 4, first = work.row + at.m + g;
  const int column = work.column + at.n, columns = work.taps * p.channels;
  to += ((long long)work.group * p.out_channels + first) * apart + column;
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = first + i * TILE_ROWS + r * 8 < work.columns;
      To* const row = to + (i * TILE_ROWS + r * 8) * apart;
      if constexpr (sizeof(To) == 2 && NT % 4 == 0) {
        if (p.y_vector == 8) {
#pragma unroll
          for (int j = 0; j < NT; j += 4) {
            unsigned v[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
              v[e] = pack<OUTPUT == 2>(acc[i][j + e][2 * r], acc[i][j + e][2 * r + 1]);
            const uint4 eight = exchanged(v, at.lane);
            const int n = (j + q) * 8;
            if (there && column + n < columns) *reinterpret_cast<uint4*>(row + n) = eight;
          }
          continue;
        }
      }
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const int n = j * 8 + q * 2;
        if (!there || column + n >= columns) continue;
        if constexpr (sizeof(To) == 4)
          *reinterpret_cast<float2*>(row + n) = make_float2(acc[i][j][2 * r], acc[i][j][2 * r + 1]);
        else
          *reinterpret_cast<unsigned*>(row + n) =
              pack<OUTPUT == 2>(acc[i][j][2 * r], acc[i][j][2 * r + 1]);
      }
    }
}

// What a segment's bucket has of an output channel, and where the bucket lies.
struct Bucket {
  long long each;
  float* sums;
  __device__ __forceinline__ Bucket(const ImplicitParams& p, const ImplicitWork& work)
      : each((long long)work.taps * p.channels),
        sums(p.buckets + work.segment * ((long long)p.groups * p.out_channels * each)) {}
};

// Sums of a gradient, in dw or in the segment's bucket, where rows lie side by side.
__device__ __forceinline__ void store_side_by_side(const ImplicitParams& p, const ImplicitWork& work,
                                                   const ImplicitSums& acc, const Warp& at) {
  const Bucket bucket(p, work);
  if (p.buckets)
    store_rows(p, work, bucket.sums, bucket.each, acc, at);
  else
    store_rows(p, work, p.y, p.m_stride, acc, at);
}

// The same anywhere.
__device__ __forceinline__ void store_gradient(const ImplicitParams& p, const ImplicitWork& work,
                                               const ImplicitSums& acc, const Warp& at) {
  if (p.y_vector > 1) return store_side_by_side(p, work, acc, at);
  const int g = at.lane / 4, q = at.lane % 4;
  const Bucket bucket(p, work);
  const bool pairs = p.buckets && p.channels % 2 == 0;
#pragma unroll
  for (int j = 0; j < NT; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      PatchColumn column;
      column.set(p, work, work.column + at.n + j * 8 + q * 2 + c);
      column.find(p, work);
#pragma unroll
      for (int i = 0; i < MT; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int m = work.row + at.m + i * TILE_ROWS + r * 8 + g;
          const int channel =
              MERGED ? column.channel - (m >> p.out_log << p.channels_log) : column.channel;
          if (!column.there || m >= work.columns || (unsigned)channel >= (unsigned)p.channels) continue;
          const long long out = (long long)work.group * p.out_channels + m;
          float* const sum = bucket.sums + out * bucket.each + column.number(work) * p.channels + channel;
          if (pairs) {
            if (c == 0)
              *reinterpret_cast<float2*>(sum) = make_float2(acc[i][j][2 * r], acc[i][j][2 * r + 1]);
          } else if (p.buckets) {
            *sum = acc[i][j][2 * r + c];
          } else {
            store_sum(p.y + out * p.m_stride + column.filter + channel * p.c_stride,
                      acc[i][j][2 * r + c]);
          }
        }
    }
  }
}
