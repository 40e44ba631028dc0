// The transforms of Ωα(n, r) on Tensor Cores, outside of the products: U = G dy and V = BT x as
// 16-bit values, read once for all channel blocks, filter rows and depths, and the output transform.
//
// The sum runs over positions k: a row of dy has UNITS × images of them, padded to PITCH, row after
// row, depth after depth; V has the same for the rows of x, so that filter row fh meets U at k with
// V at k + (fh + shift) · PITCH. Layout of both, in the order in which wgmma reads them with
// the 128-byte swizzle: [piece][part][state][block of 64 channels][k][64 channels], the 16-byte
// pieces of row k exchanged by ^ (k % 8). Wide filters take pieces of N taps, each with a V.
// FP32 data become a high and a low FP16 part (PARTS = 2), scaled by a power of two of each block
// of KB positions × 64 channels, whose inverse is kept in [piece][block of channels][k / KB].

template <int TYPE>
struct Element {
  using type = unsigned short;  // bits of FP16 (1) or BF16 (2)
};
template <>
struct Element<0> {
  using type = float;
};
using Input = Element<INPUT>::type;
using Output = Element<OUTPUT>::type;
constexpr bool BF16 = INPUT == 2;
constexpr int KB = PARTS == 2 ? KS : 16;  // positions of a block of the transform
constexpr int LARGEST = 13;               // exponent of the largest scaled element of a block
// A state of FP16 data may be sqrt(2) times the largest element: halved, it does not overflow.
constexpr float HALVED = INPUT == 1 ? 0.5f : 1.0f;

struct Side {  // x or dy, in one chunk of images and rows
  const Input* data;  // group's first channel, first image and row of the chunk
  unsigned short* to;
  float* scale;
  long long batch, depth, row;  // strides in elements
  int pixel, width, channels, blocks, depths, rows;
};

struct TransformParams {
  Side x, dy;
  int images, units, pitch, pad_width, pieces;
};

__device__ __forceinline__ void load_pair(float& first, float& second, const Input* p, int count) {
  first = second = 0.0f;
  if constexpr (INPUT == 0) {
    if (XVEC == 2 && count >= 2) {
      const float2 pair = __ldg(reinterpret_cast<const float2*>(p));
      first = pair.x, second = pair.y;
    } else {
      if (count >= 1) first = __ldg(reinterpret_cast<const float*>(p));
      if (count >= 2) second = __ldg(reinterpret_cast<const float*>(p) + 1);
    }
  } else {
    unsigned pair = 0;
    if (XVEC == 2 && count >= 2) {
      pair = __ldg(reinterpret_cast<const unsigned*>(p));
    } else {
      const unsigned short* q = reinterpret_cast<const unsigned short*>(p);
      if (count >= 1) pair = __ldg(q);
      if (count >= 2) pair |= (unsigned)__ldg(q + 1) << 16;
    }
    unpack<BF16>(pair, first, second);
  }
}

// The power of two that brings the largest finite element of the thread block's below 2^(LARGEST+1).
__device__ __forceinline__ float block_scale(unsigned largest, unsigned* shared) {
#pragma unroll
  for (int lane = 16; lane; lane /= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = shared[0];
#pragma unroll
  for (int i = 1; i < KB / 2; ++i) largest = max(largest, shared[i]);
  const int exponent = largest ? 254 + LARGEST - (int)(largest >> 23) : 127;
  return __uint_as_float((unsigned)min(exponent, 253) << 23);
}

// Two positions a warp of x or dy, two channels a lane: load their columns, transform, store.
template <bool X>
__device__ __forceinline__ void transform_block(const TransformParams& p, const Side& side,
                                                int index, unsigned* shared) {
  constexpr int COUNT = X ? ALPHA : R;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks_k = p.pitch / KB;
  const int block = index % side.blocks;
  index /= side.blocks;
  const int kb = index % blocks_k;
  index /= blocks_k;
  const int row = index % side.rows;
  index /= side.rows;
  const int depth = index % side.depths, piece = index / side.depths;
  const int channel = block * 64 + lane * 2;
  const long long positions = (long long)side.depths * side.rows * p.pitch;
  const Input* data = side.data + depth * side.depth + row * side.row + channel;
  float d[2][COUNT][2];
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = kb * KB + warp * 2 + i, unit = at / p.images, image = at % p.images;
    const int first = unit * R + (X ? piece * N - p.pad_width : 0);
    const int count = unit < p.units ? side.channels - channel : 0;
    const Input* q = data + image * side.batch + (long long)first * side.pixel;
#pragma unroll
    for (int j = 0; j < COUNT; ++j)
      load_pair(d[i][j][0], d[i][j][1], q + (long long)j * side.pixel,
                (unsigned)(first + j) < (unsigned)side.width ? count : 0);
  }
  float scale = HALVED;
  const long long k = ((long long)depth * side.rows + row) * p.pitch + kb * KB;
  if constexpr (PARTS == 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const unsigned bits = __float_as_uint(d[i][j][c]) & 0x7fffffffu;
          largest = max(largest, bits < 0x7f800000u ? bits : 0u);
        }
    scale = block_scale(largest, shared);
    if (threadIdx.x == 0)
      side.scale[((long long)piece * side.blocks + block) * (positions / KB) + k / KB] =
          __uint_as_float((254u << 23) - __float_as_uint(scale));
  }
  const long long state_stride = side.blocks * positions * 64;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = warp * 2 + i;  // PITCH and KB are multiples of 8
    unsigned short* to = side.to + (long long)piece * PARTS * ALPHA * state_stride +
                         (block * positions + k + at) * 64 + ((lane / 4) ^ (at % 8)) * 8 +
                         lane % 4 * 2;
    float state[2][ALPHA];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
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
      const unsigned high = pack<BF16>(state[0][s], state[1][s]);
      *reinterpret_cast<unsigned*>(to + s * state_stride) = high;
      if constexpr (PARTS == 2) {
        float first, second;
        unpack<BF16>(high, first, second);
        *reinterpret_cast<unsigned*>(to + (ALPHA + s) * state_stride) =
            pack<BF16>(__fsub_rn(state[0][s], first), __fsub_rn(state[1][s], second));
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(KB * 16)
    winolab_omega_transform(const __grid_constant__ TransformParams p) {
  __shared__ unsigned shared[KB / 2];
  const int blocks_k = p.pitch / KB;
  const int dy_blocks = p.dy.depths * p.dy.rows * blocks_k * p.dy.blocks;
  const int index = blockIdx.x;
  if (index < dy_blocks)
    transform_block<false>(p, p.dy, index, shared);
  else
    transform_block<true>(p, p.x, index - dy_blocks, shared);
}

struct FinishParams {
  const float* m;  // [segment][state][tap of the slice][outputs, padded][channels, padded]
  Output* dw;
  long long dw_out, dw_depth, dw_row, dw_tap;  // strides in elements; channels are contiguous
  int out_channels, channels, padded_out, padded;
  int taps, first_tap, taps_height, pieces, taps_width, segments;
};

__device__ __forceinline__ void store(Output* to, float value) {
  if constexpr (OUTPUT == 0)
    *to = value;
  else
    *to = (unsigned short)pack<OUTPUT == 2>(value, 0.0f);
}

// dw = AT of the compensated sums of the segments: one channel of one tap's piece a thread.
extern "C" __global__ void __launch_bounds__(256)
    winolab_omega_finish(const __grid_constant__ FinishParams p) {
  const int channel = blockIdx.x * 256 + threadIdx.x, out = blockIdx.y;
  if (channel >= p.channels) return;
  int tap = p.first_tap + blockIdx.z;
  const int piece = tap % p.pieces;
  tap /= p.pieces;
  const int fh = tap % p.taps_height, fd = tap / p.taps_height;
  const long long plane = (long long)p.padded_out * p.padded;
  const float* m = p.m + blockIdx.z * plane + (long long)out * p.padded + channel;
  float state[ALPHA], taps[N];
#pragma unroll
  for (int s = 0; s < ALPHA; ++s) {
    float sum = 0.0f, lost = 0.0f;
    for (int z = 0; z < p.segments; ++z) {
      const float term = __fsub_rn(__ldg(m + ((long long)z * ALPHA + s) * p.taps * plane), lost);
      const float total = __fadd_rn(sum, term);
      lost = __fsub_rn(__fsub_rn(total, sum), term);
      sum = total;
    }
    state[s] = sum;
  }
  transform_output(state, taps);
  Output* dw = p.dw + out * p.dw_out + fd * p.dw_depth + fh * p.dw_row + channel;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (piece * N + i < p.taps_width) store(dw + (piece * N + i) * p.dw_tap, __fmul_rn(taps[i], 1 / (HALVED * HALVED)));
}
