// What a consumer thread of gamma_wgmma/kernel.cuh finishes where tiles are wgmma's rows
// (filters_shared.cuh): chunks of eight tiles a warp and 16 channels, of which it has four channels
// of one. A warpgroup has half of the channels or, where 16s of them are odd in number, of the
// tiles.
#pragma once

#include "filters_shared.cuh"

constexpr int SIXTEENS = BM / 16;
constexpr bool TILES_HALVED = SIXTEENS % 2 == 1;
constexpr int CHUNKS = SIXTEENS * HALVES;  // of a warpgroup
constexpr int THREAD_TILES = TILES_HALVED ? HALVES : 2 * HALVES;  // of the same channels

// Which of the thread's tiles, and which 16 channels, chunk i of a half has.
__device__ __forceinline__ constexpr int tile_in(int half, int i) {
  return i % THREAD_TILES + (TILES_HALVED ? half * THREAD_TILES : 0);
}
__device__ __forceinline__ constexpr int sixteen_in(int half, int i) {
  return i / THREAD_TILES + (TILES_HALVED ? 0 : half * (SIXTEENS / 2));
}

// A state's sums of a chunk.
__device__ __forceinline__ float4 chunk_of(const float (&acc)[STEPS][SUMS], int s, int half, int i) {
  const int tile = tile_in(half, i);
  const float* its = &acc[s * HALVES + tile / 2][sixteen_in(half, i) * 8 + tile % 2 * 2];
  return make_float4(its[0], its[1], its[4], its[5]);
}

template <int GROUP>
struct Outputs {
  const long long* first;
  const int* words;  // of tiles
  const BlockFactors<BM>& factors;
  int m, channel, left;  // m: the channel, in the block
  unsigned few = 0;  // of a chunk four bits: channels of which few outputs are small
  static_assert(CHUNKS * 4 <= 32);
  AccuracyCheck<4, true> check;

  static __device__ __forceinline__ int own() {
    return sixteen_in(GROUP, 0) * 16 + threadIdx.x % 4 * 4;
  }

  __device__ __forceinline__ Outputs(const GammaWgmmaParams& p, const long long* first, const int* words,
                                     const BlockFactors<BM>& factors, int channel)
      : first(first), words(words), factors(factors), m(own()), channel(channel + m),
        left(p.out_channels - this->channel), check(p.header, factors, m) {}

  __device__ __forceinline__ void chunk(const GammaWgmmaParams& p, int i, const float (&state)[4][ALPHA]) {
    if (i > 0 && i % THREAD_TILES == 0) {  // the next 16 channels from here on
      channel += 16;
      left -= 16;
      check = AccuracyCheck<4, true>(p.header, factors, m += 16);
    }
    const int own = tile_in(GROUP, i);
    const int tile = tile_of(own / 2, own % 2, threadIdx.x % 128);
    float y[4][N];
#pragma unroll
    for (int c = 0; c < 4; ++c) transform_output(state[c], y[c]);
    Output* to = p.y + (first[tile] + channel);
    const int word = words[tile], columns = left > 0 ? columns_of(word) : 0;
    few |= check.tile(y, columns, back_of(word)) << i * 4;
#ifdef EPILOGUE
    finish_tile<4, YVEC == 4>(p.epilogue, y, to, p.y, p.y_pixel, columns, channel, left);
#endif
#pragma unroll
    for (int o = 0; o < N; ++o, to += p.y_pixel) {
      const float v[4] = {y[0][o], y[1][o], y[2][o], y[3][o]};
      if (o < columns) store(to, v, left);
    }
  }

  __device__ __forceinline__ void end(const GammaWgmmaParams& p) {
    constexpr int LAST = (CHUNKS - 1) / THREAD_TILES * 16;  // channels that chunks went on by
#pragma unroll 1
    for (int bit = 0; few; ++bit, few >>= 1) {
      const int i = bit / 4, c = i / THREAD_TILES * 16 + bit % 4 - LAST;
      if (!(few & 1) || channel + c >= p.out_channels) continue;
      const int own = tile_in(GROUP, i), tile = tile_of(own / 2, own % 2, threadIdx.x % 128);
      const int word = words[tile];
      note_in_row(p.header, p.y + (first[tile] + channel + c), columns_of(word), starts(word),
                  p.y_pixel, Factors(factors.at(m + c), back_of(word)));
    }
  }
};
