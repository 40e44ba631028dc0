// U = G w for every outer tap, as 16-bit parts: [block of BM outputs, the last of NARROW where that
// is not 0][outer tap / SHARE][chunk of 16 channels][state][filter row % SHARE][part], zero-filled;
// of a filter's last stage, REST rows where it has not SHARE. A part of a filter row of a state is
// in the order of wgmma's A registers, [warp][lane][4 registers of 2 values], or (V_AS_A) of its B
// in shared memory, [channel / 8][output][channel % 8], of every 16 outputs in the order 0 1 4 5 8
// 9 12 13 2 3 6 7 10 11 14 15, so that a thread's accumulators of two groups of eight are four
// neighbours. The operand map is in the strides: backward data swaps m and c and walks the taps
// backwards.
#pragma once

#include "parts.cuh"
#include "pipeline.cuh"

// A state before it is split: more than FP32 holds, where its transform is FP64.
using State = Either<PARTS == 2, double, float>::type;

struct GammaFilterParams {
  const Element* w;  // element (m = 0, tap = 0, c = 0) as the convolution runs over it
  unsigned* u;
  Row* rows;  // scale.cuh
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int out_channels, channels, height, width;  // of the filter, in taps; what lies beyond is 0
  int taps, taps_height, taps_width, chunks;
  int outputs;  // that U has
};

// What a thread has of a chunk of FILTER_M outputs, as 128 threads share it: two neighbouring channels
// of an output, a word of every part. (Four pairs a thread left too few threads for FP64's latencies.)
struct FilterPair {
  int m, channel;
  int part;          // words of a part
  const Element* w;  // of the output and the channel
  unsigned* u;       // of the output's block, the word
  __device__ __forceinline__ FilterPair(const GammaFilterParams& p, int thread, int block) {
    static_assert(FILTER_M == 16, "a warp's rows of wgmma's A");
    const int group = block % (BM / FILTER_M);
    const int outputs = NARROW > 0 && p.outputs - (block - group) * FILTER_M < BM ? NARROW : BM;
    int word;
    if (V_AS_A) {
      const int n = thread / 8;
      m = n % 8 / 2 * 4 + n / 8 * 2 + n % 2, channel = thread % 8 * 2;
      word = thread % 8 / 4 * (outputs * 4) + (group * FILTER_M + n) * 4 + thread % 4;
    } else {
      const int k = thread % 4, g = thread / 16, q = thread / 4 % 4;
      m = PAIRED ? g * 2 + k % 2 : k % 2 * 8 + g, channel = k / 2 * 8 + q * 2;
      word = group * 128 + thread;
    }
    m += block * FILTER_M;
    part = outputs * (KC / 2);
    w = p.w + m * p.m_stride + channel * p.c_stride;
    const long long stages = (long long)(m / BM) * p.taps * p.chunks;
    u = p.u + stages * (BM * (KC / 2) * ALPHA * PARTS) + word;
  }
};

// A chunk of channels of an outer tap: its place in depth, height and width.
struct FilterUnit {
  unsigned row, depth, height, width, chunk;
  __device__ __forceinline__ FilterUnit(const GammaFilterParams& p, unsigned tap, unsigned chunk)
      : row(tap / p.taps_width), depth(row / p.taps_height), height(row - depth * p.taps_height),
        width(tap - row * p.taps_width), chunk(chunk) {}
  // The one so many chunks before, which are not divided: a quarter of a unit's instructions were these.
  __device__ __forceinline__ void retreat(const GammaFilterParams& p, unsigned chunks) {
    int left = chunk - chunks;
    for (; left < 0; left += p.chunks) {
      if (width-- > 0) continue;
      width = p.taps_width - 1, --row;
      if (height-- == 0) height = p.taps_height - 1, --depth;
    }
    chunk = left;
  }
};

// From a row's element to its neighbours', in w or in what was copied of it.
template <class T>
struct Strides {
  T c, depth, row, width;
};

// A pair's elements in a unit, loaded from where they are; ``at``: where the first unit's first is.
template <class At, class Stride, class Load>
__device__ __forceinline__ void read_taps(const GammaFilterParams& p, const FilterPair& pair,
                                          const FilterUnit& unit, At at,
                                          const Strides<Stride>& stride, Load load,
                                          Element (&raw)[2][R]) {
  const int first = unit.chunk * KC + pair.channel;
  at += unit.chunk * (KC * stride.c) + unit.depth * stride.depth + unit.height * stride.row +
        unit.width * (R * stride.width);
  const bool inside = pair.m < p.out_channels & unit.height < p.height;
#pragma unroll
  for (int j = 0; j < R; ++j, at += stride.width)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool is = inside & first + e < p.channels & unit.width * R + j < p.width;  // no branch
      raw[e][j] = is ? load(at + e * stride.c) : Element(0);
    }
}

// From w itself.
__device__ __forceinline__ void read_taps(const GammaFilterParams& p, const FilterPair& pair,
                                          const FilterUnit& unit, Element (&raw)[2][R]) {
  const Strides<long long> stride = {p.c_stride, p.depth_stride, p.row_stride, p.width_stride};
  const auto load = [](const Element* w) { return *w; };  // no __ldg
  read_taps(p, pair, unit, pair.w, stride, load, raw);
}

// Scales the taps of a pair of channels.
__device__ __forceinline__ void scale_taps(float scale, const Element (&raw)[2][R],
                                           float (&taps)[2][R]) {
#pragma unroll
  for (int j = 0; j < 2 * R; ++j) taps[j / R][j % R] = __fmul_rn(scale, value(raw[j / R][j % R]));
}

// Transforms and stores them, scaled, where U has the output.
__device__ __forceinline__ void write_states(const GammaFilterParams& p, const FilterPair& pair,
                                             const FilterUnit& unit, const float (&taps)[2][R]) {
  if (pair.m >= p.outputs) return;
  State state[2][ALPHA];
#pragma unroll
  for (int e = 0; e < 2; ++e) transform_filter(taps[e], state[e]);
  const int rows = REST > 0 && unit.height + REST >= p.taps_height ? REST : SHARE;  // of the stage
  const unsigned in_stage = unit.height % SHARE;
  const unsigned stages = (unit.row - in_stage) * p.taps_width * p.chunks;
  const unsigned before = (stages + (unit.width * p.chunks + unit.chunk) * rows) * ALPHA + in_stage;
  unsigned* u = pair.u + (unsigned long long)before * (pair.part * PARTS);
#pragma unroll
  for (int s = 0; s < ALPHA; ++s) {
    unsigned parts[PARTS];
    if (BARE >> s & 1)  // a tap: FP32 has it, and needs no conversion
      split((float)state[0][s], (float)state[1][s], parts);
    else
      split(state[0][s], state[1][s], parts);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) u[(s * rows * PARTS + part) * pair.part] = parts[part];
  }
}
