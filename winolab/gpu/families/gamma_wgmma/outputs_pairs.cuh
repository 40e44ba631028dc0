// What a consumer thread of gamma_wgmma/kernel.cuh finishes where output channels are wgmma's rows:
// chunks of eight tiles, of which it has two channels of two. Channels 2g and 2g + 1 of its warp's
// 16 are the accumulators' rows g and g + 8 (PAIRED).
#pragma once

#include "filters_registers.cuh"

constexpr int CHUNKS = BT / 16;  // of a warpgroup

// A state's sums of chunk i of a half of the tiles.
__device__ __forceinline__ float4 chunk_of(const float (&acc)[STEPS][SUMS], int s, int half, int i) {
  const int j = half * CHUNKS + i;
  const float* its = &acc[s * HALVES + j / 8][j % 8 * 4];
  return make_float4(its[0], its[1], its[2], its[3]);
}

// Stores a thread's two channels of an output, or the one that is left.
__device__ __forceinline__ void store(float* to, float first, float second, int left) {
  if constexpr (YVEC == 4) {
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
  } else {
    to[0] = first;
    if (left > 1) to[1] = second;
  }
}
__device__ __forceinline__ void store(unsigned short* to, float first, float second, int left) {
  const unsigned pair = pack<BF16>(first, second);
  if constexpr (YVEC == 4) {
    *reinterpret_cast<unsigned*>(to) = pair;
  } else {
    to[0] = (unsigned short)pair;
    if (left > 1) to[1] = (unsigned short)(pair >> 16);
  }
}

template <int GROUP>
struct Outputs {
  const long long* first;
  const int* words;  // of tiles
  const BlockFactors<BM>& factors;
  int m, channel, left;  // m: the channel, in the block
  unsigned few = 0;  // of a tile two bits: channels of which few outputs are small
  static_assert(CHUNKS * 4 <= 32);
  AccuracyCheck<2> check;

  static __device__ __forceinline__ int own() {
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 * 2;
  }

  __device__ __forceinline__ Outputs(const GammaWgmmaParams& p, const long long* first, const int* words,
                                     const BlockFactors<BM>& factors, int channel)
      : first(first), words(words), factors(factors), m(own()), channel(channel + m),
        left(p.out_channels - this->channel), check(p.header, factors, m) {}

  __device__ __forceinline__ void chunk(const GammaWgmmaParams& p, int i, const float (&state)[4][ALPHA]) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int tile = (GROUP * CHUNKS + i) * 8 + threadIdx.x % 4 * 2 + c;
      float y[2][N];
      transform_output(state[c], y[0]);
      transform_output(state[2 + c], y[1]);
      Output* to = p.y + (first[tile] + channel);
      const int word = words[tile], columns = left > 0 ? columns_of(word) : 0;
      few |= check.tile(y, columns, back_of(word)) << (i * 2 + c) * 2;
#ifdef EPILOGUE
      finish_tile<2, YVEC == 4>(p.epilogue, y, to, p.y, p.y_pixel, columns, channel, left);
#endif
#pragma unroll
      for (int o = 0; o < N; ++o, to += p.y_pixel)
        if (o < columns) store(to, y[0][o], y[1][o], left);
    }
  }

  __device__ __forceinline__ void end(const GammaWgmmaParams& p) {
#pragma unroll 1
    for (int bit = 0; few; ++bit, few >>= 1) {
      const int c = bit % 2;
      if (!(few & 1) || channel + c >= p.out_channels) continue;
      const int tile = (GROUP * CHUNKS + bit / 4) * 8 + threadIdx.x % 4 * 2 + bit / 2 % 2;
      const int word = words[tile];
      note_in_row(p.header, p.y + (first[tile] + channel + c), columns_of(word), starts(word),
                  p.y_pixel, Factors(factors.at(m + c), back_of(word)));
    }
  }
};
