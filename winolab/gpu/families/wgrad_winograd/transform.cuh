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
// block of zeros, negative where an element that is not zero may have vanished beside the others.
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
constexpr float VANISHING = 1.0f / (1 << 22);  // of scaled elements: high parts may be 0
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
  int* flags;  // to be cleared, or null
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
// where there is none but zeros; ``vanishes``: a smaller one's high part may be 0.
__device__ __forceinline__ float block_scale(unsigned largest, unsigned smallest, bool& vanishes) {
  __shared__ unsigned shared[KB];
  largest = __reduce_max_sync(0xffffffffu, largest);
  smallest = __reduce_max_sync(0xffffffffu, smallest);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) shared[warp] = largest, shared[KB / 2 + warp] = smallest;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < KB / 2; ++i)
    largest = max(largest, shared[i]), smallest = max(smallest, shared[KB / 2 + i]);
  const int exponent = 254 + LARGEST - (int)(largest >> 23);
  const float scale = largest ? __uint_as_float((unsigned)min(exponent, 253) << 23) : 0.0f;
  vanishes = __fmul_rn(__uint_as_float(0u - smallest), scale) < VANISHING;
  return scale;
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
    unsigned largest = 0, smallest = 0;  // the latter negated, so that zeros do not count
#pragma unroll
    for (int i = 0; i < REPEATS; ++i)
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
#pragma unroll
        for (int c = 0; c < WIDE; ++c) {
          const unsigned bits = __float_as_uint(d[i][j][c]) & 0x7fffffffu;
          largest = max(largest, bits < 0x7f800000u ? bits : 1u);  // infinity makes no scale
          smallest = max(smallest, 0u - bits);
        }
    bool vanishes;
    scale = block_scale(largest, smallest, vanishes);
    if (threadIdx.x == 0)
      side.scale[((long long)piece * side.blocks + block) * (positions / KB) + k / KB] =
          scale == 0.0f ? 0.0f
                        : __uint_as_float(((254u << 23) - __float_as_uint(scale)) |
                                          (unsigned)vanishes << 31);
  }
  const long long state_stride = side.blocks * positions * 64;
#pragma unroll
  for (int i = 0; i < REPEATS; ++i) {
    const int at = first_at + i;  // PITCH and KB are multiples of 8
    unsigned short* to = side.to + (long long)piece * PARTS * ALPHA * state_stride +
                         (block * positions + k + at) * 64 +
                         ((lane * WIDE / 8) ^ (at % 8)) * 8 + lane * WIDE % 8;
    float state[WIDE][ALPHA];
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
      if constexpr (PARTS == 2) store_wide(to + (ALPHA + s) * state_stride, low);
    }
  }
}

// Blocks of a multiprocessor, 1024 threads; wide tiles have no registers for as many.
constexpr int TOGETHER = 1024 / (KB * 16) / (ALPHA <= 10 ? 1 : 2);
extern "C" __global__ void __launch_bounds__(KB * 16, TOGETHER)
    winolab_wgrad_winograd_transform(const __grid_constant__ TransformParams p) {
  next_launch_may_begin();
  launch_before_done();
  if (p.flags && blockIdx.x == 0 && threadIdx.x < 3) p.flags[threadIdx.x] = 0;
  const int blocks_k = p.pitch / KB;
  const int dy_blocks = p.batches * p.dy.depths * p.dy.rows * blocks_k * p.dy.blocks;
  const int index = blockIdx.x;
  if (index < dy_blocks)
    transform_block<false>(p, p.dy, index);
  else
    transform_block<true>(p, p.x, index - dy_blocks);
}
