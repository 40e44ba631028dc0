// U = G w for every outer tap, as 16-bit parts in the order of wgmma's A registers:
// [block of 64 outputs][outer tap / SHARE][chunk of 16 channels][filter row % SHARE]
// [state][part][warp][lane][4 registers of 2 values], zero-filled.
// The operand map is in the strides: backward data swaps m and c and walks the taps backwards.

// A state before it is split: more than FP32 holds, where its transform is FP64.
using State = Wide<PARTS == 2>::type;

struct FilterParams {
  const Element* w;  // element (m = 0, tap = 0, c = 0) as the convolution runs over it
  unsigned* u;
  const Row* rows;  // scale.cuh
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int out_channels, channels, height, width;  // of the filter, in taps; what lies beyond is 0
  int taps, taps_height, taps_width, chunks;
};

extern "C" __global__ void __launch_bounds__(128)
    winolab_filter(const __grid_constant__ FilterParams p) {
  next_launch_may_begin();
  launch_before_done();  // which found the scales
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int chunk = blockIdx.y, tap = blockIdx.z;
  const int fw = tap % p.taps_width, row = tap / p.taps_width;
  const int fh = row % p.taps_height, fd = row / p.taps_height;
  State state[8][ALPHA];
#pragma unroll
  for (int e = 0; e < 8; ++e) {  // the register's e / 2, its pair's e % 2
    const int place = PAIRED ? g * 2 + e / 2 % 2 : e / 2 % 2 * 8 + g;  // of a warp's 16 channels
    const int m = blockIdx.x * BN + warp * 16 + place;
    const int c = chunk * KC + e / 4 * 8 + q * 2 + e % 2;
    const bool inside = m < p.out_channels && c < p.channels && fh < p.height;
    const Element* w = p.w + m * p.m_stride + c * p.c_stride + fd * p.depth_stride +
                       fh * p.row_stride + fw * R * p.width_stride;
    const float scale = row_scale(p.rows, m);
    float taps[R];
#pragma unroll
    for (int j = 0; j < R; ++j)
      taps[j] = inside && fw * R + j < p.width ? __fmul_rn(scale, value(w[j * p.width_stride])) : 0.0f;
    transform_filter(taps, state[e]);
  }
  const int group = row / SHARE * p.taps_width + fw;
  const long long block =
      (((long long)blockIdx.x * (p.taps / SHARE) + group) * p.chunks + chunk) * SHARE + row % SHARE;
  unsigned* u = p.u + (block * ALPHA * PARTS * 128 + threadIdx.x) * 4;
#pragma unroll
  for (int s = 0; s < ALPHA; ++s) {
    uint4 parts[PARTS];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned pair[PARTS];
      split(state[2 * k][s], state[2 * k + 1][s], pair);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) (&parts[part].x)[k] = pair[part];
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      *reinterpret_cast<uint4*>(u + (s * PARTS + part) * 128 * 4) = parts[part];
  }
}
