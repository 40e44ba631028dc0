// The filter of split products: a row for every output channel, tap and 32 channels, of 32 high parts
// and 32 low ones in FP16, and the scales and thresholds of output channels (scale.cuh).
//
// The fours of 32 channels are exchanged so that a lane of the products finds its channels of x in
// 16 bytes: wgmma's k = 16 h + 2 q + {0, 1, 8, 9} is channel 4 (2 q + h) + {0, 1, 2, 3}. Rows are in
// such an order that it stores 16 bytes: the columns 2 q + {0, 1, 8, 9} of 16 are the output channels
// 4 q + {0, 1, 2, 3}; rows of no output channel are zeros.
// Roles: a block looks for an output channel's largest element, then splits it. The operand map is in
// the strides: backward data swaps m and c and walks the taps backwards. Blocks behind the last
// output channel write that it loses nothing.
#pragma once

#include "mma.cuh"
#include "accuracy_check.cuh"

struct DirectFilterParams {
  const float* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it
  unsigned short* parts;
  Row* rows;
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int out_channels, channels, height, width, taps, chunks;
  float known;  // the scale of all rows, where the caller knows it, or 0
};

constexpr int FILTER_THREADS = 128, FILTER_WARPS = FILTER_THREADS / 32;

// A digit of a number that grows by the same step again and again: of so many, by ``step``, and by one
// more where the digit below it was full.
struct Digit {
  int at, step, count;
  __device__ __forceinline__ Digit(int& first, int& by, int count)
      : at(first % count), step(by % count), count(count) {
    first /= count, by /= count;
  }
  __device__ __forceinline__ int grow(int more) {
    at += step + more;
    const bool full = at >= count;
    if (full) at -= count;
    return full;
  }
};

// A warp's places in a row, one after another: 32 channels of a tap, a unit. Four divisions an element
// took a third more instructions, which no cache has.
struct RowUnit {
  int unit = threadIdx.x / 32, z = unit, by = FILTER_WARPS;
  Digit chunk, x, y;
  __device__ __forceinline__ explicit RowUnit(const DirectFilterParams& p)
      : chunk(z, by, p.chunks), x(z, by, p.width), y(z, by, p.height) {}
  __device__ __forceinline__ float load(const DirectFilterParams& p, const float* w) const {
    const int c = chunk.at * 32 + threadIdx.x % 32;
    const float* const at =
        w + c * p.c_stride + x.at * p.width_stride + y.at * p.row_stride + z * p.depth_stride;
    return unit < p.taps * p.chunks && c < p.channels ? __ldg(at) : 0.0f;
  }
  __device__ __forceinline__ void next() {
    unit += FILTER_WARPS;
    z += by + y.grow(x.grow(chunk.grow(0)));
  }
};

// f of a row's elements and their units, from a warp's first one on.
template <class F>
__device__ __forceinline__ void over_row(const DirectFilterParams& p, const float* w, RowUnit at, F f) {
  constexpr int BATCH = 4;  // loaded at once
  const int units = p.taps * p.chunks;
#pragma unroll 1
  while (at.unit < units) {
    const int first = at.unit;
    float v[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; ++k, at.next()) v[k] = at.load(p, w);
#pragma unroll
    for (int k = 0; k < BATCH; ++k)
      if (first + k * FILTER_WARPS < units) f(v[k], first + k * FILTER_WARPS);
  }
}

extern "C" __global__ void __launch_bounds__(FILTER_THREADS)
    winolab_direct_filter(const __grid_constant__ DirectFilterParams p) {
  next_launch_may_begin();
  __shared__ unsigned largest[FILTER_WARPS];
  __shared__ Loss losses[FILTER_WARPS];
  const int m = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool there = m < p.out_channels;
  const float* w = p.w + (there ? m : 0) * p.m_stride;
  unsigned most = 0;
  const RowUnit first(p);
  if (there) over_row(p, w, first, [&](float v, int) { most = max(most, magnitude(v)); });
  most = __reduce_max_sync(0xffffffffu, most);
  if (lane == 0) largest[warp] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < FILTER_WARPS; ++i) most = max(most, largest[i]);
  const float scale = p.known != 0.0f ? p.known : scale_of(most, SCALE_FILTER);
  const int row = m / 16 * 16 + m % 4 / 2 * 8 + m % 16 / 4 * 2 + m % 2;
  unsigned short* parts = p.parts + (long long)row * p.taps * p.chunks * 64;
  const int four = lane / 4, in_four = lane % 4;
  const int place = four % 2 * 16 + four / 2 * 2 + in_four % 2 + in_four / 2 * 8;
  Loss loss = {};
  if (m < (p.out_channels + 15) / 16 * 16)
    over_row(p, w, first, [&](float read, int unit) {
      const float v = there ? read : 0.0f, number = __fmul_rn(v, scale);
      loss.add(v, number);
      const unsigned high = pack(number, 0.0f);
      float rounded, zero;
      unpack(high, rounded, zero);
      unsigned short* const to = parts + (long long)unit * 64 + place;
      to[0] = (unsigned short)high;
      to[32] = (unsigned short)pack(__fsub_rn(number, rounded), 0.0f);
    });
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) {
    loss.square = __fadd_rn(loss.square, __shfl_xor_sync(0xffffffffu, loss.square, flip));
    loss.lost = __fadd_rn(loss.lost, __shfl_xor_sync(0xffffffffu, loss.lost, flip));
    loss.gone |= __shfl_xor_sync(0xffffffffu, loss.gone, flip);
  }
  if (lane == 0) losses[warp] = loss;
  __syncthreads();
  if (threadIdx.x == 0) {
    Loss all = losses[0];
#pragma unroll
    for (int i = 1; i < FILTER_WARPS; ++i) {
      all.square = __fadd_rn(all.square, losses[i].square);
      all.lost = __fadd_rn(all.lost, losses[i].lost);
      all.gone |= losses[i].gone;
    }
    p.rows[m] = Row(most, scale, all, there ? p.taps * p.channels : 0);
  }
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");  // tensor copies will read the parts
#endif
  launch_before_done();  // so that who waits for this launch has waited for that one, too
}
