// The epilogue of gamma_tensor.cuh for 16 bits, where a block sums alone. Every output of a tile needs
// all states, of which each consumer warpgroup has half, in the same thread: thread to thread they
// exchange half of the tiles, apply AT to the others and store. Producers go on.

constexpr int CHUNKS = BT / 16;  // of 8 tiles, of a warpgroup

struct Staging {
  float4 box[2][HELD][CHUNKS][128];  // for a warpgroup, from the other one
  Output* first[BT];                 // of a tile: its first output and channel
  int columns[BT];                   // its outputs along the width; 0: none
};

__device__ __forceinline__ void staging_init(Staging&) {}
__device__ __forceinline__ void finish(const Params&, Staging&, int, Pipe<BUFFERS>&) {}

__device__ __forceinline__ void place(const Params& p, Staging& staging, const Item& item, int tile) {
  const int at = item.column + tile % COLUMNS, row = item.row + tile / COLUMNS;
  const Column column(p, at);
  const bool inside = at < p.columns && row < p.out_height;
  staging.first[tile] = p.y + column.batch * p.y_batch + column.depth * p.y_depth + row * p.y_row +
                        (long long)column.first * p.y_pixel;
  staging.columns[tile] = inside ? min(N, p.out_width - column.first) : 0;
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

// By consumers, with an item's accumulators. A thread has channels 2g and 2g + 1 of its warp's 16.
__device__ __forceinline__ void deliver(const Params& p, Staging& staging,
                                        const float (&acc)[STEPS][32], int index, Pipe<BUFFERS>&) {
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  const Item item(p, index);
  const int channel = item.block_m * BN + thread / 32 * 16 + lane / 4 * 2;
  consumers_sync<CONSUMERS>();  // the last item's have been read
  if (threadIdx.x < BT) place(p, staging, item, threadIdx.x);
  float kept[HELD][CHUNKS][4];
#pragma unroll
  for (int s = 0; s < HELD; ++s)
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      const int j = i + CHUNKS;
      const float* first = &acc[s * HALVES + i / 8][i % 8 * 4];
      const float* last = &acc[s * HALVES + j / 8][j % 8 * 4];
      float given[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        given[e] = group ? first[e] : last[e];
        kept[s][i][e] = group ? last[e] : first[e];
      }
      staging.box[1 - group][s][i][thread] = make_float4(given[0], given[1], given[2], given[3]);
    }
  consumers_sync<CONSUMERS>();
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    float state[4][ALPHA];  // of channels and tiles, as accumulators are
#pragma unroll
    for (int s = 0; s < HELD; ++s) {
      const float4 v = staging.box[group][s][i][thread];
      const float got[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        state[e][s] = group ? got[e] : kept[s][i][e];
        state[e][HELD + s] = group ? kept[s][i][e] : got[e];
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int tile = (group * CHUNKS + i) * 8 + lane % 4 * 2 + c;
      float y[2][N];
      transform_output(state[c], y[0]);
      transform_output(state[2 + c], y[1]);
      Watched::scale_back(y);
      Output* to = staging.first[tile] + channel;
      const int columns = channel < p.out_channels ? staging.columns[tile] : 0;
#pragma unroll
      for (int o = 0; o < N; ++o)
        if (o < columns)
          store(to + (long long)o * p.y_pixel, y[0][o], y[1][o], p.out_channels - channel);
    }
  }
}
