// U = G w for every outer tap, as 16-bit parts in the order of wgmma's A registers:
// [block of 64 outputs][outer tap / SHARE][chunk of 16 channels][state][filter row % SHARE][part]
// [warp][lane][4 registers of 2 values], zero-filled, or (TURNED) of wgmma's B in shared memory: [channel / 8]
// [output][channel % 8], of every 16 outputs in the order 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15, so that a
// thread's accumulators of two groups of eight are four neighbours. Of a filter's last stage, REST rows
// where it has not SHARE.
// The operand map is in the strides: backward data swaps m and c and walks the taps backwards.

// A state before it is split: more than FP32 holds, where its transform is FP64.
using State = Either<PARTS == 2, double, float>::type;

struct FilterParams {
  const Element* w;  // element (m = 0, tap = 0, c = 0) as the convolution runs over it
  unsigned* u;
  const Row* rows;  // scale.cuh
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int out_channels, channels, height, width;  // of the filter, in taps; what lies beyond is 0
  int taps, taps_height, taps_width, chunks;
};

// A thread makes one register's pair in each of FILTER_CHUNKS chunks, two neighbouring channels
// of an output; four threads a lane's, a block those of a warp's FILTER_M outputs. A thread for a
// lane, all four registers, left too few threads for the latencies of FP64.
constexpr int REGISTERS = 4;
static_assert(FILTER_M == 16, "a warp's");

extern "C" __global__ void __launch_bounds__(128)
    winolab_filter(const __grid_constant__ FilterParams p) {
  next_launch_may_begin();
  const int k = threadIdx.x % REGISTERS, lane = threadIdx.x / REGISTERS, g = lane / 4, q = lane % 4;
  const int n = threadIdx.x / 8;
  const int chunk = blockIdx.y * FILTER_CHUNKS;
  const unsigned row = blockIdx.z / p.taps_width, fw = blockIdx.z - row * p.taps_width;
  const unsigned fd = row / p.taps_height, fh = row - fd * p.taps_height;
  const int m = blockIdx.x * FILTER_M + (TURNED ? n % 8 / 2 * 4 + n / 8 * 2 + n % 2
                                         : PAIRED ? g * 2 + k % 2
                                                  : k % 2 * 8 + g);
  const int first =
      chunk * KC + (TURNED ? threadIdx.x % 8 * 2 : k / 2 * 8 + q * 2);  // channel
  const Element* w = p.w + m * p.m_stride + first * p.c_stride + fd * p.depth_stride +
                     fh * p.row_stride + fw * R * p.width_stride;
  Element raw[FILTER_CHUNKS][2][R];  // early: no launch of the call writes w
#pragma unroll
  for (int i = 0; i < FILTER_CHUNKS; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const int c = i * KC + e;
        const bool inside = m < p.out_channels && first + c < p.channels && fh < p.height &&
                            fw * R + j < p.width;
        raw[i][e][j] = inside ? w[c * p.c_stride + j * p.width_stride] : Element(0);  // no __ldg
      }
  launch_before_done();  // which found the scales
  const float scale = row_scale(p.rows, m);
  const int block_m = blockIdx.x / (BN / FILTER_M), part_m = blockIdx.x % (BN / FILTER_M);
  const int rows = REST > 0 && fh + REST >= p.taps_height ? REST : SHARE;  // of the stage
  const long long before = ((long long)block_m * p.taps + (row - fh % SHARE) * p.taps_width) * p.chunks +
                           (fw * p.chunks + chunk) * rows;  // filter rows
  constexpr int U_PART = BN * KC / 2;  // words of a part of a state of a chunk
  unsigned* u = p.u + (before * ALPHA + fh % SHARE) * (PARTS * U_PART);
  u += TURNED ? threadIdx.x % 8 / 4 * (BN * 4) + (part_m * FILTER_M + n) * 4 + threadIdx.x % 4
                    : part_m * 128 + threadIdx.x;
#pragma unroll
  for (int i = 0; i < FILTER_CHUNKS; ++i, u += rows * ALPHA * PARTS * U_PART) {
    if (chunk + i >= p.chunks) return;
    State state[2][ALPHA];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float taps[R];
#pragma unroll
      for (int j = 0; j < R; ++j) taps[j] = __fmul_rn(scale, value(raw[i][e][j]));
      transform_filter(taps, state[e]);
    }
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) {
      unsigned pair[PARTS];
      split(state[0][s], state[1][s], pair);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) u[(s * rows * PARTS + part) * U_PART] = pair[part];
    }
  }
}
