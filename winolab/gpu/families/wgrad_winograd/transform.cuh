// The transforms of Ωα(n, r) on Tensor Cores, outside of the products: U = G dy and V = BT x as
// 16-bit values, made once for all channel blocks, filter rows and depths.
//
// The sum runs over positions k: a row of dy has UNITS × images of them, padded to PITCH, row after
// row, depth after depth, batch of images after batch; V has the same for the rows of x, so that
// filter row fh meets U at k with V at k + (fh + shift) · PITCH, soon enough for the L2 cache to
// have it still. Layout of both, in the order in which wgmma reads them with the 128-byte swizzle:
// [piece][part][state][block of 64 channels][k][64 channels], the 16-byte pieces of row k exchanged
// by ^ (k % 8). Wide filters take pieces of N taps, each with a V.
// FP32 data become a high and a low FP16 part (PARTS = 2), scaled by a power of two of each block
// of KB positions × 64 channels, whose inverse is kept in [piece][block of channels][k / KB]: 0 for a
// block of zeros. Beside it is what low parts may lose of each channel, in units of its square.
#pragma once

#include "either.cuh"
#include "fallback.cuh"
#include "mma.cuh"
#include "pipeline.cuh"

// FP32 (0), or the bits of FP16 (1) or BF16 (2).
using Input = Either<INPUT == 0, float, unsigned short>::type;
using Output = Either<OUTPUT == 0, float, unsigned short>::type;
constexpr bool BF16 = INPUT == 2;
constexpr int KB = PARTS == 2 ? KS : 16;  // positions of a block of the transform
constexpr int LARGEST = 13;               // exponent of the largest scaled element of a block
constexpr float LOSSY = 0.25f;  // of scaled states: below, a low part is a subnormal number or 0
constexpr int WORST_SCALES = 4;  // among the flags: largest scales of dy and of x, as bits
// A state of 16-bit data may be 2 times the largest element: halved, it does not overflow.
constexpr float HALVED = INPUT == 0 ? 1.0f : 0.5f;

struct TransformSide {  // x or dy, in one chunk of images and rows
  const Input* data;  // group's first channel, first image and row of the chunk
  unsigned short* to;
  float* scale;
  long long batch, depth, row;  // strides in elements
  int pixel, width, channels, blocks, depths, rows;
};

struct TransformParams {
  TransformSide x, dy;
  int images, batch, batches;  // all, and in how many batches of how many
  int units, pitch, pad_width, pieces;
  int* flags;      // to be cleared, or null
  double* totals;  // the same, of so many channels (kernel.cuh)
  int all_channels;
  float* losses_x;   // [piece][block of channels][k / KB][64 channels], or null
  float* losses_dy;  // the same
  float most_x, most_dy;  // that a channel may lose, times the squares of its elements
};

constexpr int WIDE = INPUT == 0 ? 2 : 4;  // channels of a lane
constexpr int LANES = 64 / WIDE;          // of a position
constexpr int REPEATS = LANES / 16;       // positions that a lane transforms, one after another

// Elements of WIDE channels, as many of them as count says; zeros for the others.
__device__ __forceinline__ void load_wide(float (&v)[WIDE], const Input* p, int count) {
  if constexpr (INPUT == 0) {
    v[0] = v[1] = 0.0f;
    if (XVEC == 2 && count >= 2) {
      const float2 pair = __ldg(reinterpret_cast<const float2*>(p));
      v[0] = pair.x, v[1] = pair.y;
    } else {
      if (count >= 1) v[0] = __ldg(reinterpret_cast<const float*>(p));
      if (count >= 2) v[1] = __ldg(reinterpret_cast<const float*>(p) + 1);
    }
  } else {
    uint2 bits = make_uint2(0, 0);
    if (XVEC == 4) {
      if (count > 0) bits = __ldg(reinterpret_cast<const uint2*>(p));
    } else {
      const unsigned short* q = reinterpret_cast<const unsigned short*>(p);
      if (count >= 1) bits.x = __ldg(q);
      if (count >= 2) bits.x |= (unsigned)__ldg(q + 1) << 16;
      if (count >= 3) bits.y = __ldg(q + 2);
      if (count >= 4) bits.y |= (unsigned)__ldg(q + 3) << 16;
    }
    unpack<BF16>(bits.x, v[0], v[1]);
    unpack<BF16>(bits.y, v[2], v[3]);
  }
}

__device__ __forceinline__ void store_wide(unsigned short* to, const unsigned (&pairs)[WIDE / 2]) {
  if constexpr (WIDE == 4)
    *reinterpret_cast<uint2*>(to) = make_uint2(pairs[0], pairs[1]);
  else
    *reinterpret_cast<unsigned*>(to) = pairs[0];
}

// The power of two that brings the largest element of the thread block's below 2^(LARGEST+1), 0
// where there is none but zeros.
__device__ __forceinline__ float block_scale(unsigned largest) {
  __shared__ unsigned shared[KB / 2];
  largest = __reduce_max_sync(0xffffffffu, largest);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) shared[warp] = largest;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < KB / 2; ++i) largest = max(largest, shared[i]);
  const int exponent = 254 + LARGEST - (int)(largest >> 23);
  return largest ? __uint_as_float((unsigned)min(exponent, 253) << 23) : 0.0f;
}

// What low parts lose of a block's 64 channels beyond what they may, by warps of the block: in
// shared memory, as threads' registers are full.
using Losses = float[KB / 2][64];

__device__ __forceinline__ void keep_losses(Losses& losses, const float (&excess)[WIDE], bool add) {
  float* own = &losses[threadIdx.x / 32][threadIdx.x % LANES * WIDE];
#pragma unroll
  for (int c = 0; c < WIDE; ++c) own[c] = add ? __fadd_rn(own[c], excess[c]) : excess[c];
}

__device__ __forceinline__ void store_losses(float* to, const Losses& losses) {
  __syncthreads();
  if (threadIdx.x >= 64) return;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < KB / 2; ++i) sum = __fadd_rn(sum, losses[i][threadIdx.x]);
  to[threadIdx.x] = sum;
}

// Two positions a warp of x or dy, WIDE channels a lane: load their columns, transform, store.
template <bool X>
__device__ __forceinline__ void transform_block(const TransformParams& p, const TransformSide& side,
                                                int index) {
  constexpr int COUNT = X ? N + R - 1 : R;
  const int lane = threadIdx.x % LANES, first_at = threadIdx.x / LANES * REPEATS;
  const int blocks_k = p.pitch / KB;
  const int block = index % side.blocks;
  index /= side.blocks;
  const int kb = index % blocks_k;
  index /= blocks_k;
  const int row = index % side.rows;
  index /= side.rows;
  const int depth = index % side.depths;
  index /= side.depths;
  const int batch = index % p.batches, piece = index / p.batches;
  const int channel = block * 64 + lane * WIDE;
  const long long positions = (long long)p.batches * side.depths * side.rows * p.pitch;
  const Input* data = side.data + depth * side.depth + row * side.row + channel;
  float d[REPEATS][COUNT][WIDE];
#pragma unroll
  for (int i = 0; i < REPEATS; ++i) {
    const int at = kb * KB + first_at + i, unit = at / p.batch;
    const int image = batch * p.batch + at % p.batch;
    const int first = unit * R + (X ? piece * N - p.pad_width : 0);
    const int count = unit < p.units && image < p.images ? side.channels - channel : 0;
    const Input* q = data + image * side.batch + (long long)first * side.pixel;
#pragma unroll
    for (int j = 0; j < COUNT; ++j)
      load_wide(d[i][j], q + (long long)j * side.pixel,
                (unsigned)(first + j) < (unsigned)side.width ? count : 0);
  }
  float scale = HALVED;
  const long long k =
      (((long long)batch * side.depths + depth) * side.rows + row) * p.pitch + kb * KB;
  if constexpr (PARTS == 2) {
    unsigned largest = 0;
#pragma unroll
    for (int i = 0; i < REPEATS; ++i)
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
#pragma unroll
        for (int c = 0; c < WIDE; ++c) {
          const unsigned bits = __float_as_uint(d[i][j][c]) & 0x7fffffffu;
          largest = max(largest, bits < 0x7f800000u ? bits : 1u);  // infinity makes no scale
        }
    scale = block_scale(largest);
    if (threadIdx.x == 0)
      side.scale[((long long)piece * side.blocks + block) * (positions / KB) + k / KB] =
          scale == 0.0f ? 0.0f : __uint_as_float((254u << 23) - __float_as_uint(scale));
  }
  __shared__ Losses losses;
  const long long state_stride = side.blocks * positions * 64;
#pragma unroll
  for (int i = 0; i < REPEATS; ++i) {
    const int at = first_at + i;  // PITCH and KB are multiples of 8
    unsigned short* to = side.to + (long long)piece * PARTS * ALPHA * state_stride +
                         (block * positions + k + at) * 64 +
                         ((lane * WIDE / 8) ^ (at % 8)) * 8 + lane * WIDE % 8;
    float state[WIDE][ALPHA];
    // Squares of what low parts may lose of split products' channels, as far as they reach results,
    // less what they may.
    float excess[WIDE] = {};
#pragma unroll
    for (int c = 0; c < WIDE; ++c) {
      float column[COUNT];
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
        column[j] = __fmul_rn(d[i][j][c], scale);
      if constexpr (X)
        transform_input(column, state[c]);
      else
        transform_filter(column, state[c]);
      if constexpr (PARTS == 2) {
        const float most = X ? p.most_x : p.most_dy;
#pragma unroll
        for (int j = 0; j < COUNT; ++j)
          excess[c] = __fmaf_rn(column[j], -__fmul_rn(column[j], most), excess[c]);
      }
    }
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) {
      unsigned high[WIDE / 2], low[WIDE / 2];
#pragma unroll
      for (int c = 0; c < WIDE / 2; ++c) {
        high[c] = pack<BF16>(state[2 * c][s], state[2 * c + 1][s]);
        if constexpr (PARTS == 2) {
          float first, second;
          unpack<BF16>(high[c], first, second);
          low[c] = pack<BF16>(__fsub_rn(state[2 * c][s], first),
                              __fsub_rn(state[2 * c + 1][s], second));
        }
      }
      store_wide(to + s * state_stride, high);
      if constexpr (PARTS == 2) {
        store_wide(to + (ALPHA + s) * state_stride, low);
        constexpr float reach[2][ALPHA] = REACH;  // of dy and of x: source.py
#pragma unroll
        for (int c = 0; c < WIDE; ++c)
          if (state[c][s] != 0.0f && fabsf(state[c][s]) < LOSSY)
            excess[c] = __fadd_rn(excess[c], reach[X][s]);
      }
    }
    if constexpr (PARTS == 2) keep_losses(losses, excess, i > 0);
  }
  if constexpr (PARTS == 2) {
    float* to_losses = X ? p.losses_x : p.losses_dy;
    const long long at = ((long long)piece * side.blocks + block) * (positions / KB) + k / KB;
    if (to_losses) store_losses(to_losses + at * 64, losses);
  }
}

// By the first block, what winolab_wgrad_winograd_losses adds to.
__device__ __forceinline__ void clear_losses(const TransformParams& p) {
  if (blockIdx.x) return;
  if (p.flags && threadIdx.x < 2) p.flags[WORST_SCALES + threadIdx.x] = 0;
  if (!p.totals) return;
  for (int i = threadIdx.x; i < p.all_channels; i += blockDim.x) p.totals[i] = 0.0;
}

// Blocks of a multiprocessor, 1024 threads; wide tiles have no registers for as many.
constexpr int TOGETHER = 1024 / (KB * 16) / (ALPHA <= 10 ? 1 : 2);
extern "C" __global__ void __launch_bounds__(KB * 16, TOGETHER)
    winolab_wgrad_winograd_transform(const __grid_constant__ TransformParams p) {
  next_launch_may_begin();
  launch_before_done();
  if (p.flags && blockIdx.x == 0 && threadIdx.x < 3) p.flags[threadIdx.x] = 0;
  if constexpr (PARTS == 2) clear_losses(p);
  const int blocks_k = p.pitch / KB;
  const int dy_blocks = p.batches * p.dy.depths * p.dy.rows * blocks_k * p.dy.blocks;
  const int index = blockIdx.x;
  if (index < dy_blocks)
    transform_block<false>(p, p.dy, index);
  else
    transform_block<true>(p, p.x, index - dy_blocks);
}
