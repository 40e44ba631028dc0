// What a consumer thread of gamma_tensor.cuh finishes where tiles are wgmma's rows (filters_shared.cuh):
// chunks of eight tiles a warp and 16 channels, of which it has four channels of one.

constexpr int CHUNKS = BT / 16;  // of a warpgroup
constexpr int THREAD_TILES = 2 * HALVES;

// A state's sums of chunk i of a half of the channels.
__device__ __forceinline__ float4 chunk_of(const float (&acc)[STEPS][32], int s, int half, int i) {
  const int tile = i % THREAD_TILES, sixteen = half * 2 + i / THREAD_TILES;
  const float* its = &acc[s * HALVES + tile / 2][sixteen * 8 + tile % 2 * 2];
  return make_float4(its[0], its[1], its[4], its[5]);
}

template <int GROUP>
struct Outputs {
  const long long* first;
  const int* tile_columns;
  const Factors* factors;
  int channel, left;
  Watched<4, true> watched;

  static __device__ __forceinline__ int own() { return GROUP * 32 + threadIdx.x % 4 * 4; }

  __device__ __forceinline__ Outputs(const Params& p, const long long* first, const int* columns,
                                     const Factors* factors, int channel)
      : first(first), tile_columns(columns), factors(factors + own()), channel(channel + own()),
        left(WHOLE ? 4 : p.out_channels - this->channel), watched(p.header, this->factors) {}

  __device__ __forceinline__ void chunk(const Params& p, int i, const float (&state)[4][ALPHA]) {
    if (i == THREAD_TILES) {  // the other 16 channels from here on
      watched.template channels<4>();
      channel += 16;
      if (!WHOLE) left -= 16;
      watched = Watched<4, true>(p.header, factors + 16);
    }
    const int tile = tile_of(i % THREAD_TILES / 2, i % 2, threadIdx.x % 128);
    float y[4][N];
#pragma unroll
    for (int c = 0; c < 4; ++c) transform_output(state[c], y[c]);
    Output* to = p.y + (first[tile] + channel);
    const int columns = WHOLE ? N : left > 0 ? tile_columns[tile] : 0;
    watched.tile(y, columns);
#pragma unroll
    for (int o = 0; o < N; ++o, to += p.y_pixel) {
      const float v[4] = {y[0][o], y[1][o], y[2][o], y[3][o]};
      if (o < columns) store(to, v, left);
    }
  }

  __device__ __forceinline__ void end() { watched.template channels<4>(); }
};
