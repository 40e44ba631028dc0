// Whether results hold what scale.cuh promises: each channel of each tile is held against the size
// below which accuracy is lost, by the kernels that make them, before they are scaled back. After
// them, whether suspects lost accuracy and whether results of 0 are of numbers that vanished.
#pragma once

#include "scale.cuh"

// Fewer outputs of a channel may all be near 0 by chance: then a window of as many tells.
constexpr int CHECKED_OUTPUTS = 4;

// A tile's few outputs of a channel, small: decided on when the window's others are there, too.
struct Suspect {
  const float* first;  // of the window's outputs, scaled back
  long long row_stride;
  Factors factors;
  int pixel_stride;
  short width, height;  // of the window
};

__device__ __forceinline__ Suspect* suspects(Header* header) {
  static_assert(sizeof(Header) <= HEADER_BYTES && HEADER_BYTES % alignof(Suspect) == 0, "behind it");
  static_assert(sizeof(Suspect) == SUSPECT_BYTES, "as the plan has it");
  return reinterpret_cast<Suspect*>(peaks(header) + PEAKS);
}

__device__ __forceinline__ void note(Header* header, const Suspect& suspect) {
  const int at = atomicAdd(&header->suspects, 1);
  if (at < header->room)
    suspects(header)[at] = suspect;
  else
    header->flags[LOST] = 1;
}

// Whether one of the suspects lost accuracy, from the ``first`` on in steps.
__device__ __forceinline__ bool confirmed(Header* header, int first, int step) {
  const int count = min(header->suspects, header->room);
  bool found = false;
  for (int i = first; i < count; i += step) {
    const Suspect suspect = suspects(header)[i];
    const Factors& f = suspect.factors;
    float sum = 0.0f;
    for (int y = 0; y < suspect.height; ++y)
      for (int x = 0; x < suspect.width; ++x) {
        const float v = suspect.first[y * suspect.row_stride + x * suspect.pixel_stride];
        sum = __fadd_rn(
            sum, fabsf(__fmul_rn(__fmul_rn(v, inverse_of(f.last)), inverse_of(f.first))));
      }
    const float least = __fmul_rn(f.least, suspect.width * suspect.height);
    found |= !(sum >= least && sum < __int_as_float(0x7f800000));
  }
  return found;
}

#ifdef FALLBACK
#else
// A thread's outputs in CHANNELS neighbouring channels: checked, and scaled back. KEPT: registers keep
// the channels' factors. ``back``: the inverse of the scale of the outputs' image.
template <int CHANNELS = 4, bool KEPT = CHANNELS == 2>
struct AccuracyCheck {
  Header* header;
  const Row* rows;  // of the channels, where registers do not keep:
  ChannelFactors kept[CHANNELS];

  __device__ __forceinline__ AccuracyCheck(Header* header, const Row* rows)
      : header(header), rows(rows) {
    static_assert(!KEPT);
  }

  // Those of a block's channels from m on.
  template <int COUNT>
  __device__ __forceinline__ AccuracyCheck(Header* header, const BlockFactors<COUNT>& factors, int m)
      : header(header) {
    static_assert(KEPT);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) kept[c] = factors.at(m + c);
  }

  // A tile's outputs in a row, of which the first ``count`` are: checked, then scaled back, which is
  // exact but where FP32 holds the result with fewer bits, or not. Each channel is judged by itself,
  // so that no neighbour, tile or image hides what it loses. Returned are the channels, as bits, of
  // which few outputs are small: for note_in_row().
  __device__ __forceinline__ unsigned tile(float (&y)[CHANNELS][N], int count, float back) {
    unsigned small = 0;  // channels
    bool zero = false;   // a channel's
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      const Factors factors(KEPT ? kept[c] : ChannelFactors(rows + c), back);
      float size = 0.0f;
#pragma unroll
      for (int o = 0; o < N; ++o) {
        if (o < count) size = __fadd_rn(size, fabsf(y[c][o]));
        y[c][o] = __fmul_rn(__fmul_rn(y[c][o], factors.first), factors.last);
      }
      const bool enough = size >= __fmul_rn(factors.least, count) && size < __int_as_float(0x7f800000);
      if (!enough) zero |= size == 0.0f, small |= size != 0.0f ? 1u << c : 0;
    }
    if (zero) header->flags[ZERO] = 1;
    if (count < CHECKED_OUTPUTS) return small;
    if (small) header->flags[LOST] = 1;
    return 0;
  }

  __device__ __forceinline__ Factors factors(int c, float back) const {
    return Factors(ChannelFactors(rows + c), back);
  }
};

// The suspect of a channel's ``count`` outputs of a tile, by the row's last CHECKED_OUTPUTS that
// end with them; or, where the row starts with them, its first. ``to``: where they are.
__device__ __forceinline__ void note_in_row(Header* header, const float* to, int count, bool start,
                                            int pixel_stride, const Factors& factors) {
  const float* from = start ? to : to + (long long)(count - CHECKED_OUTPUTS) * pixel_stride;
  note(header, {from, 0, factors, pixel_stride, CHECKED_OUTPUTS, 1});
}

#endif
// Numbers that vanish though they are not 0, in what one of so many blocks has of x and of all rows.
__device__ __forceinline__ void scan(const ScaleParams& p, int block, int blocks) {
  const long long first = (long long)block * blockDim.x + threadIdx.x;
  const long long step = (long long)blocks * blockDim.x;
  const float scale = input_scale(p.header);
  bool tiny = false;
  for (long long i = first; i < p.vectors; i += step) {
    const float4 v = load_vector(p, i);
    const int image = (int)(i / p.of_image);
    const float own = image < p.images ? image_scale(p.header, scale, image) : scale;
    const float elements[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (float x : elements) tiny |= x != 0.0f && fabsf(__fmul_rn(x, own)) < UNDERFLOW;
  }
  for (long long i = first; i < p.all_rows; i += step) tiny |= p.rows[i].tiny != 0.0f;
  if (tiny) p.header->flags[TINY] = 1;
}

#ifdef FALLBACK
#else
// Where some results are suspect or 0, and no fallback follows.
extern "C" __global__ void __launch_bounds__(SCALE_THREADS)
    winolab_scan(const __grid_constant__ ScaleParams p) {
  next_launch_may_begin();
  launch_before_done();
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (confirmed(p.header, thread, gridDim.x * blockDim.x)) p.header->flags[CONFIRMED] = 1;
  if (p.header->flags[ZERO]) scan(p, blockIdx.x, gridDim.x);
}
#endif
