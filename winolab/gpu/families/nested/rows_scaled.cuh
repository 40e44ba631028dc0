// Scales and thresholds of the filter's rows (scale.cuh), of split FP32.
//
// Rows are described by blocks of the input's launch. Where neighbours in memory are of one row, a
// block reads its row twice. Where they are of neighbouring rows (aside), blocks look for the
// largest elements of slices of 32 rows; what is lost to the scales, the transform finds, and a
// small launch adds up: row by row, sectors of 32 bytes for 16, took up to 50 µs longer.
#pragma once

#include "filter_params.cuh"
#include "output_params.cuh"
#include "accuracy_check.cuh"

constexpr int ASIDE = 32;  // output channels of a block that looks at neighbouring rows

__device__ __forceinline__ int row_size(const NestedFilterParams& p, int m) {
  return m < p.out_channels ? p.channels * p.depth * p.height * p.width : 0;
}
__device__ __forceinline__ float scale_of_row(const NestedFilterParams& p, unsigned most) {
  return p.known != 0.0f ? p.known : scale_of(most, SCALE_FILTER);
}
// Where a row's element of that number lies; with no step, its place among channels and taps.
__device__ __forceinline__ long long place_of(const NestedFilterParams& p, int i) {
  if (p.step) return p.lowest + (long long)i * p.step;
  const int c = i % p.channels, tap = i / p.channels;
  const int row = tap / p.width;
  return c * p.c_stride + row / p.height * p.depth_stride + row % p.height * p.row_stride +
         tap % p.width * p.width_stride;
}

// f(load(i)) of every ``step``-th i, eight loads at once.
template <class Load, class F>
__device__ __forceinline__ void batches(int first, int end, int step, Load load, F f) {
  constexpr int BATCH = 8;
#pragma unroll 1
  for (int i = first; i < end; i += BATCH * step) {
    float4 v[BATCH] = {};
#pragma unroll
    for (int k = 0; k < BATCH; ++k)
      if (i + k * step < end) v[k] = load(i + k * step);
#pragma unroll
    for (int k = 0; k < BATCH; ++k) f(v[k]);
  }
}

__device__ __forceinline__ unsigned merged(unsigned a, unsigned b) { return max(a, b); }
__device__ __forceinline__ unsigned across(unsigned v, int flip) {
  return __shfl_xor_sync(0xffffffffu, v, flip);
}
__device__ __forceinline__ Loss merged(const Loss& a, const Loss& b) {
  return {__fadd_rn(a.square, b.square), __fadd_rn(a.lost, b.lost), a.gone | b.gone};
}
__device__ __forceinline__ Loss across(const Loss& v, int flip) {
  return {__shfl_xor_sync(0xffffffffu, v.square, flip), __shfl_xor_sync(0xffffffffu, v.lost, flip),
          across(v.gone, flip)};
}

// The values of SHARERS lanes, merged: neighbouring ones, or those FIRST apart.
template <int SHARERS, int FIRST = 1, class T>
__device__ __forceinline__ T of_lanes(T value) {
#pragma unroll
  for (int flip = FIRST; flip < SHARERS; flip *= 2) value = merged(value, across(value, flip));
  return value;
}
// The values of all threads of the block, merged.
template <class T>
__device__ __forceinline__ T of_block(T (&values)[FILTER_WARPS], T value) {
  value = of_lanes<32>(value);
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value;
  __syncthreads();
  value = values[0];
#pragma unroll
  for (int w = 1; w < FILTER_WARPS; ++w) value = merged(value, values[w]);
  return value;
}

// f of all elements of a row that are this thread's, in vectors of four, the last of which may be
// zeros.
template <class F>
__device__ __forceinline__ void over_row(const NestedFilterParams& p, const float* w, int size, F f) {
  const float4* vectors = reinterpret_cast<const float4*>(w + p.lowest);
  if (p.step == 1 && size % 4 == 0 && (unsigned long long)vectors % 16 == 0)
    batches(
        threadIdx.x, size / 4, FILTER_THREADS, [&](int i) { return __ldg(vectors + i); }, f);
  else
    batches(
        threadIdx.x, size, FILTER_THREADS,
        [&](int i) { return make_float4(__ldg(w + place_of(p, i)), 0.0f, 0.0f, 0.0f); }, f);
}

// A row's scale and thresholds, by one block.
__device__ __forceinline__ void describe_row(const NestedFilterParams& p, int m) {
  __shared__ unsigned largest[FILTER_WARPS];
  __shared__ Loss losses[FILTER_WARPS];
  const int size = row_size(p, m);
  const float* w = p.w + (size ? m : 0) * p.m_stride;
  unsigned most = 0;
  over_row(p, w, size, [&](const float4& v) {
    most = max(max(most, max(magnitude(v.x), magnitude(v.y))), max(magnitude(v.z), magnitude(v.w)));
  });
  most = of_block(largest, most);
  const float scale = scale_of_row(p, most);
  Loss loss = {};
  over_row(p, w, size, [&](const float4& v) {
    loss.add(v.x, __fmul_rn(v.x, scale)), loss.add(v.y, __fmul_rn(v.y, scale));
    loss.add(v.z, __fmul_rn(v.z, scale)), loss.add(v.w, __fmul_rn(v.w, scale));
  });
  loss = of_block(losses, loss);
  if (threadIdx.x == 0) p.rows[m] = Row(most, scale, loss, size);
}

// The largest elements of a slice of ASIDE rows from m on, by one block: a thread has four of the rows.
__device__ __forceinline__ void find_largest(const NestedFilterParams& p, int m, int slice) {
  constexpr int PLACES = ASIDE / 4, DOWN = FILTER_THREADS / PLACES;
  __shared__ unsigned largest[FILTER_WARPS][ASIDE];
  const int place = threadIdx.x % PLACES, mine = m + place * 4, count = p.out_channels - mine;
  const float* w = p.w + (count > 0 ? mine : 0) * p.m_stride;
  const int size = row_size(p, mine);
  const int first = (int)((long long)size * slice / p.slices) + threadIdx.x / PLACES;
  const int end = (int)((long long)size * (slice + 1) / p.slices);
  const bool wide = (unsigned long long)(w + p.lowest) % 16 == 0 && p.m_stride == 1 && p.step > 0 &&
                    p.step % 4 == 0 && count >= 4;
  unsigned most[4] = {};
  const auto add = [&](const float4& v) {
    most[0] = max(most[0], magnitude(v.x)), most[1] = max(most[1], magnitude(v.y));
    most[2] = max(most[2], magnitude(v.z)), most[3] = max(most[3], magnitude(v.w));
  };
  if (wide)
    batches(first, end, DOWN, [&](int i) {
      return __ldg(reinterpret_cast<const float4*>(w + p.lowest + (long long)i * p.step));
    }, add);
  else
    batches(first, end, DOWN, [&](int i) {
      const float* at = w + place_of(p, i);
      return make_float4(__ldg(at), count > 1 ? __ldg(at + p.m_stride) : 0.0f,
                         count > 2 ? __ldg(at + 2 * p.m_stride) : 0.0f,
                         count > 3 ? __ldg(at + 3 * p.m_stride) : 0.0f);
    }, add);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    most[r] = of_lanes<32, PLACES>(most[r]);
    if (threadIdx.x % 32 < PLACES) largest[threadIdx.x / 32][place * 4 + r] = most[r];
  }
  __syncthreads();
  if (threadIdx.x < ASIDE && m + threadIdx.x < p.outputs) {
    unsigned all = 0;
#pragma unroll
    for (int warp = 0; warp < FILTER_WARPS; ++warp) all = max(all, largest[warp][threadIdx.x]);
    p.maxima[(long long)slice * p.outputs + m + threadIdx.x] = all;
  }
}

// What there is to find out about rows before they are transformed, by the block of that index.
__device__ __forceinline__ void describe(const NestedFilterParams& p, int index) {
  if (p.slices)
    find_largest(p, index / p.slices * ASIDE, index % p.slices);
  else
    describe_row(p, index);
}

extern "C" __global__ void __launch_bounds__(FILTER_THREADS)
    winolab_nested_rows(const __grid_constant__ NestedFilterParams p) {
  describe(p, blockIdx.x);
}

// Aside, the largest element of a row, as its bits, by SHARERS neighbouring lanes.
template <int SHARERS>
__device__ __forceinline__ unsigned largest_of(const NestedFilterParams& p, int m) {
  unsigned most = 0;
  for (int slice = threadIdx.x % SHARERS; slice < p.slices; slice += SHARERS)
    most = max(most, p.maxima[(long long)slice * p.outputs + m]);
  return of_lanes<SHARERS>(most);
}

// Aside, rows' scales and thresholds, a warp each, once they are transformed.
extern "C" __global__ void __launch_bounds__(FILTER_THREADS)
    winolab_nested_losses(const __grid_constant__ NestedFilterParams p) {
  next_launch_may_begin();
  launch_before_done();
  const int m = blockIdx.x * FILTER_WARPS + threadIdx.x / 32;
  const int units = p.depth * p.pieces_height * p.pieces_width * p.chunks * LOSSES;
  const unsigned most = largest_of<32>(p, m);
  Loss loss = {};
  for (int unit = threadIdx.x % 32; unit < units; unit += 32)
    loss = merged(loss, p.losses[(long long)unit * p.outputs + m]);
  loss = of_lanes<32>(loss);
  if (threadIdx.x % 32 == 0) p.rows[m] = Row(most, scale_of_row(p, most), loss, row_size(p, m));
}

// What a lane's taps lose to their scale.
template <int COLUMNS>
__device__ __forceinline__ Loss loss_of(const float (&taps)[2][COLUMNS][RH], float scale) {
  constexpr int TAPS = 2 * COLUMNS * RH;
  const auto at = [&](int i) { return taps[i / (COLUMNS * RH)][i / RH % COLUMNS][i % RH]; };
  Loss loss = {};
  unsigned least = ~0u;  // magnitude of the smallest that is not 0, less one
#pragma unroll
  for (int i = 0; i < TAPS; ++i) {
    const float tap = at(i), v = __fmul_rn(scale, tap);
    loss.square = __fmaf_rn(v, v, loss.square);
    least = min(least, magnitude(v) - 1);
    if (v == 0.0f && tap != 0.0f) least = 0;
  }
  if (least >= __float_as_uint(0.25f) - 1) return loss;  // of most lanes
  loss.square = 0.0f;
#pragma unroll
  for (int i = 0; i < TAPS; ++i) loss.add(at(i), __fmul_rn(scale, at(i)));
  return loss;
}

// The scale of a row, of which a lane has these taps; ``part``: their place among LOSSES of each piece
// and chunk, below 0 of none.
template <int COLUMNS>
__device__ __forceinline__ float row_scale(const NestedFilterParams& p, int m, int part,
                                           const float (&taps)[2][COLUMNS][RH]) {
  // not by __ldg, which might move ahead of where the launch before is waited for
  if (!p.slices) return *const_cast<volatile float*>(&p.rows[m].scale);
  const float scale = scale_of_row(p, largest_of<LANES>(p, m));
  const Loss loss = of_lanes<LANES>(loss_of(taps, scale));
  if (threadIdx.x % LANES == 0 && part >= 0) p.losses[(long long)part * p.outputs + m] = loss;
  return scale;
}

// A tile's outputs of two neighbouring channels, checked and scaled back (accuracy_check.cuh).
struct TileOutputs {
  Factors factors[2];
  float size[2] = {};  // of the outputs, scaled

  __device__ __forceinline__ TileOutputs(const Row* rows, float back) {
    factors[0] = Factors(ChannelFactors(rows), back);
    factors[1] = Factors(ChannelFactors(rows + 1), back);
  }

  __device__ __forceinline__ void add(float (&y)[2]) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      size[c] = __fadd_rn(size[c], fabsf(y[c]));
      y[c] = __fmul_rn(__fmul_rn(y[c], factors[c].first), factors[c].last);
    }
  }

  // Hands on what a part of them has, to be taken together.
  __device__ __forceinline__ void keep(float2& of) const { of = make_float2(size[0], size[1]); }
  __device__ __forceinline__ void take(const float2& of) {
    size[0] = __fadd_rn(size[0], of.x), size[1] = __fadd_rn(size[1], of.y);
  }

  // Judges ``left`` channels, of a tile's height × width outputs that end before row ``bottom`` and
  // column ``end`` of a map that begins at y.
  __device__ __forceinline__ void check(const OutputParams& p, const float* y, int bottom, int end,
                                        int height, int width, int left) const {
    const int count = height * width;
    // Where they are few, a window around them that has CHECKED_OUTPUTS, before them if it can be.
    const int wide = min(p.width, (CHECKED_OUTPUTS + height - 1) / height);
    const int high = max(height, (CHECKED_OUTPUTS + wide - 1) / wide);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (c >= left) break;
      const float least = __fmul_rn(factors[c].least, count);
      if (count >= CHECKED_OUTPUTS || size[c] == 0.0f) {
        judge(p.header->flags, size[c], least);
      } else if (!(size[c] >= least && size[c] < __int_as_float(0x7f800000))) {
        const float* from = y + max(0, bottom - high) * p.row_stride +
                            (long long)max(0, end - wide) * p.pixel_stride + c;
        note(p.header, {from, p.row_stride, factors[c], p.pixel_stride, (short)wide, (short)high});
      }
    }
  }
};
