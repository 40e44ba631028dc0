// What follows the products of Ωα(n, r) on Tensor Cores: winolab_wgrad_winograd_finish adds the segments up and
// applies AT. Of split products winolab_wgrad_winograd_losses adds up what low parts may have lost of
// each channel of x and dy: where one lost more than FP32's error, the fallback follows (fallback.cuh).
#pragma once

#include PRODUCTS_FILE
#include SUMS_FILE

struct FinishParams {
  const float* m;  // [segment][state][tap of the slice][outputs, padded][channels, padded]
  Output* dw;
  long long dw_out, dw_depth, dw_row, dw_tap;  // strides in elements; channels are contiguous
  int out_channels, channels, padded_out, padded;
  int taps, first_tap, taps_height, pieces, taps_width, segments;
  const double* totals;  // of winolab_wgrad_winograd_losses, null where nothing is checked
  int* flags;
};

// What low parts lost of each channel beyond what they may, over all positions.
struct LossesParams {
  const float* dy_scale;
  const float* x_scale;
  const float* dy_losses;  // as transform.cuh wrote them
  const float* x_losses;
  double* totals;  // [outputs, padded, then channels, padded]
  int* flags;
  int dy_blocks, x_blocks, dy_steps, x_steps, pieces;  // steps of KB positions
};

constexpr int PART = 8;

// Adds a chunk's to the totals. A block of threads has 64 channels of a piece, and each of its
// groups of 64 threads the steps of a part, all loaded at once.
extern "C" __global__ void __launch_bounds__(256, 4)
    winolab_wgrad_winograd_losses(const __grid_constant__ LossesParams p) {
  next_launch_may_begin();
  launch_before_done();
  if constexpr (PARTS == 2) {
    __shared__ double shared[256];
    const int thread = threadIdx.x, channel = thread % 64;
    const bool x = (int)blockIdx.x >= p.dy_blocks;
    const int index = x ? blockIdx.x - p.dy_blocks : blockIdx.x;
    const int steps = x ? p.x_steps : p.dy_steps, first = (blockIdx.y * 4 + thread / 64) * PART;
    const float* scales = (x ? p.x_scale : p.dy_scale) + (long long)index * steps;
    const float* losses = (x ? p.x_losses : p.dy_losses) + (long long)index * steps * 64 + channel;
    float scale[PART], excess[PART];
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      scale[i] = first + i < steps ? __ldg(scales + first + i) : 0.0f;
      excess[i] = first + i < steps ? __ldg(losses + (first + i) * 64ll) : 0.0f;
    }
    double sum = 0.0;
    unsigned worst = 0;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      sum = __fma_rn(__dmul_rn(scale[i], scale[i]), excess[i], sum);
      if (scale[i] != 0.0f) worst = max(worst, (254u << 23) - __float_as_uint(scale[i]));
    }
    if (channel == 0 && worst) atomicMax(p.flags + WORST_SCALES + x, (int)worst);
    shared[thread] = sum;
    __syncthreads();
    if (thread >= 64) return;
#pragma unroll
    for (int i = 64; i < 256; i += 64) sum = __dadd_rn(sum, shared[thread + i]);
    const int block = x ? p.dy_blocks + index % p.x_blocks : index;
    if (sum != 0.0) atomicAdd(p.totals + block * 64 + channel, sum);
  }
}

// Whether a channel of dy or of x lost more than FP32's own error allows, or positions are missing
// in sums because the product of their scales underflows.
__device__ __forceinline__ bool lossy(const FinishParams& p, int out, int channel) {
  const float of_dy = __uint_as_float((254u << 23) - (unsigned)p.flags[WORST_SCALES]);
  const float of_x = __uint_as_float((254u << 23) - (unsigned)p.flags[WORST_SCALES + 1]);
  const bool within = p.totals[out] <= 0.0 && p.totals[p.padded_out + channel] <= 0.0;
  return !within || __fmul_rn(of_dy, of_x) == 0.0f;
}

__device__ __forceinline__ void store(Output* to, float value) {
  if constexpr (OUTPUT == 0)
    *to = value;
  else
    *to = (unsigned short)pack<OUTPUT == 2>(value, 0.0f);
}

// dw = AT of the sums of the segments (sums*.cuh): one channel of one tap's piece a thread.
extern "C" __global__ void __launch_bounds__(256)
    winolab_wgrad_winograd_finish(const __grid_constant__ FinishParams p) {
  const int index = blockIdx.x * 256 + threadIdx.x;
  const int out = index / p.channels, channel = index - out * p.channels;
  if (out >= p.out_channels) return;
  int tap = p.first_tap + blockIdx.y;
  const int piece = tap % p.pieces;
  tap /= p.pieces;
  const int fh = tap % p.taps_height, fd = tap / p.taps_height;
  const long long plane = (long long)p.padded_out * p.padded, stride = p.taps * plane;
  const float* m = p.m + blockIdx.y * plane + (long long)out * p.padded + channel;
  SegmentSum state[ALPHA] = {};
  float taps[N];
  launch_before_done();
  const bool lost = PARTS == 2 && p.totals && blockIdx.y == 0 && lossy(p, out, channel);
  sum_segments(m, stride, p.segments, state);
  transform_output(state, taps);
  if (PARTS == 2 && p.totals) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) sum = __fadd_rn(sum, fabsf(taps[i]));
    const bool finite = sum < __int_as_float(0x7f800000);
    if (lost || !finite) p.flags[LOST] = 1;
  }
  Output* dw = p.dw + out * p.dw_out + fd * p.dw_depth + fh * p.dw_row + channel;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (piece * N + i < p.taps_width)
      store(dw + (piece * N + i) * p.dw_tap, __fmul_rn(taps[i], 1 / (HALVED * HALVED)));
}
