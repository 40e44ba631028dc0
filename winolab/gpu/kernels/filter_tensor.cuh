// U = G w for every outer tap, as 16-bit parts: [block of 64 outputs, the last of NARROW where that is
// not 0][outer tap / SHARE][chunk of 16 channels][state][filter row % SHARE][part], zero-filled; of a
// filter's last stage, REST rows where it has not SHARE. A part of a filter row of a state is in the
// order of wgmma's A registers, [warp][lane][4 registers of 2 values], or (TURNED) of its B in shared
// memory, [channel / 8][output][channel % 8], of every 16 outputs in the order 0 1 4 5 8 9 12 13 2 3 6 7
// 10 11 14 15, so that a thread's accumulators of two groups of eight are four neighbours.
// The operand map is in the strides: backward data swaps m and c and walks the taps backwards.

// A state before it is split: more than FP32 holds, where its transform is FP64.
using State = Either<PARTS == 2, double, float>::type;

struct FilterParams {
  const Element* w;  // element (m = 0, tap = 0, c = 0) as the convolution runs over it
  unsigned* u;
  Row* rows;  // scale.cuh
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  long long lowest;  // of a row's elements in memory, from the one that w is
  int out_channels, channels, height, width;  // of the filter, in taps; what lies beyond is 0
  int taps, taps_height, taps_width, chunks;
  int outputs;  // that U has
  // Of split products (filter_scaled.cuh):
  int row_size, step;  // elements of a row of w; from one to the next in memory, or 0 where it differs
  int sharers;         // blocks that transform the same rows
  float known;         // the scale of all rows, where the caller knows it, or 0
};

// What a thread has of a chunk of FILTER_M outputs, as 128 threads share it: two neighbouring channels
// of an output, a word of every part. (Four pairs a thread left too few threads for FP64's latencies.)
struct FilterPair {
  int m, channel;
  int outputs;    // of the block
  unsigned word;  // in a part
  __device__ __forceinline__ FilterPair(const FilterParams& p, int thread, int block) {
    static_assert(FILTER_M == 16, "a warp's rows of wgmma's A");
    const int part = block % (BN / FILTER_M);
    outputs = NARROW > 0 && p.outputs - (block - part) * FILTER_M < BN ? NARROW : BN;
    if (TURNED) {
      const int n = thread / 8;
      m = n % 8 / 2 * 4 + n / 8 * 2 + n % 2, channel = thread % 8 * 2;
      word = thread % 8 / 4 * (outputs * 4) + (part * FILTER_M + n) * 4 + thread % 4;
    } else {
      const int k = thread % 4, g = thread / 16, q = thread / 4 % 4;
      m = PAIRED ? g * 2 + k % 2 : k % 2 * 8 + g, channel = k / 2 * 8 + q * 2;
      word = part * 128 + thread;
    }
    m += block * FILTER_M;
  }
};

// An outer tap: its place in depth, height and width.
struct FilterTap {
  unsigned row, depth, height, width;
  __device__ __forceinline__ FilterTap(const FilterParams& p, unsigned tap)
      : row(tap / p.taps_width), depth(row / p.taps_height), height(row - depth * p.taps_height),
        width(tap - row * p.taps_width) {}
};

// A pair's elements in an outer tap of a chunk.
__device__ __forceinline__ void read_taps(const FilterParams& p, const FilterPair& pair,
                                          const FilterTap& tap, int chunk, Element (&raw)[2][R]) {
  const int first = chunk * KC + pair.channel;
  const Element* w = p.w + pair.m * p.m_stride + first * p.c_stride + tap.depth * p.depth_stride +
                     tap.height * p.row_stride + tap.width * R * p.width_stride;
#pragma unroll
  for (int e = 0; e < 2; ++e)
#pragma unroll
    for (int j = 0; j < R; ++j) {
      const bool inside = pair.m < p.out_channels && first + e < p.channels &&
                          tap.height < p.height && tap.width * R + j < p.width;
      raw[e][j] = inside ? w[e * p.c_stride + j * p.width_stride] : Element(0);  // no __ldg
    }
}

// Transforms and stores them, where U has the output.
__device__ __forceinline__ void write_states(const FilterParams& p, const FilterPair& pair,
                                             const FilterTap& tap, int chunk,
                                             const Element (&raw)[2][R], float scale) {
  if (pair.m >= p.outputs) return;
  const int u_part = pair.outputs * (KC / 2);  // words of a part
  State state[2][ALPHA];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    float taps[R];
#pragma unroll
    for (int j = 0; j < R; ++j) taps[j] = __fmul_rn(scale, value(raw[e][j]));
    transform_filter(taps, state[e]);
  }
  const int rows = REST > 0 && tap.height + REST >= p.taps_height ? REST : SHARE;  // of the stage
  const int in_stage = tap.height % SHARE;
  const long long blocks = (long long)(pair.m / BN) * p.taps * p.chunks * (BN * (KC / 2));
  const long long inside =  // in parts of a state
      ((long long)(tap.row - in_stage) * p.taps_width * p.chunks +
       (tap.width * p.chunks + chunk) * rows) * ALPHA + in_stage;
  unsigned* u = p.u + (blocks * ALPHA + inside * u_part) * PARTS + pair.word;
#pragma unroll
  for (int s = 0; s < ALPHA; ++s) {
    unsigned parts[PARTS];
    split(state[0][s], state[1][s], parts);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) u[(s * rows * PARTS + part) * u_part] = parts[part];
  }
}
