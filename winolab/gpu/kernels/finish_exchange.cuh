// The epilogue of gamma_tensor.cuh where a block sums alone. Every output of a tile needs all states,
// of which each consumer warpgroup has half, in the same thread: thread to thread they exchange half
// of the tiles, eight at a time by way of two buffers, apply AT to the others and store. Producers
// and loaders go on.

constexpr int CHUNKS = BT / 16;  // of 8 tiles, of a warpgroup

struct Staging {
  float4 box[2][2][HELD][128];  // of a chunk, for a warpgroup, from the other one
  Output* first[BT];            // of a tile: its first output and channel
  int columns[BT];              // its outputs along the width; 0: none
};

using Delivered = Pipe<BUFFERS>;
__device__ __forceinline__ void staging_init(Staging&) {}
__device__ __forceinline__ void meet() {}
__device__ __forceinline__ void finish(const Params&, Staging&, int, Delivered&) {}

__device__ __forceinline__ void place(const Params& p, Staging& staging, const Item& item, int tile) {
  const int at = item.column + tile % COLUMNS, row = item.row + tile / COLUMNS;
  const Place column(p, at);
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

// A state's accumulators of chunk i of a half of the tiles.
__device__ __forceinline__ const float* chunk_of(const float (&acc)[STEPS][32], int s, int half,
                                                 int i) {
  const int j = half * CHUNKS + i;
  return &acc[s * HALVES + j / 8][j % 8 * 4];
}

// To the other warpgroup, what it needs of a chunk.
__device__ __forceinline__ void give(Staging& staging, const float (&acc)[STEPS][32], int group, int i) {
#pragma unroll
  for (int s = 0; s < HELD; ++s) {
    const float *first = chunk_of(acc, s, 0, i), *last = chunk_of(acc, s, 1, i);
    staging.box[i % 2][1 - group][s][threadIdx.x % 128] =
        make_float4(group ? first[0] : last[0], group ? first[1] : last[1],
                    group ? first[2] : last[2], group ? first[3] : last[3]);
  }
}

// By consumers, with an item's accumulators. A thread has channels 2g and 2g + 1 of its warp's 16.
__device__ __forceinline__ void deliver(const Params& p, Staging& staging,
                                        const float (&acc)[STEPS][32], int index, Delivered&) {
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  const Item item(p, index);
  const int channel = item.block_m * BN + thread / 32 * 16 + lane / 4 * 2;
  const int left = p.out_channels - channel;
  Watched<2> watched(p.header, p.rows + channel, input_scale(p.header));
  if (threadIdx.x < BT) place(p, staging, item, threadIdx.x);
  give(staging, acc, group, 0);
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    consumers_sync<CONSUMERS>();  // chunk i has been given, and chunk i - 1 read
    if (i + 1 < CHUNKS) give(staging, acc, group, i + 1);
    float state[4][ALPHA];  // of channels and tiles, as accumulators are
#pragma unroll
    for (int s = 0; s < HELD; ++s) {
      const float4 v = staging.box[i % 2][group][s][thread];
      const float got[4] = {v.x, v.y, v.z, v.w};
      const float *first = chunk_of(acc, s, 0, i), *last = chunk_of(acc, s, 1, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        state[e][s] = group ? got[e] : first[e];
        state[e][HELD + s] = group ? last[e] : got[e];
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int tile = (group * CHUNKS + i) * 8 + lane % 4 * 2 + c;
      float y[2][N];
      transform_output(state[c], y[0]);
      transform_output(state[2 + c], y[1]);
      Output* to = staging.first[tile] + channel;
      const int columns = left > 0 ? staging.columns[tile] : 0;
      watched.tile(y, columns);
#pragma unroll
      for (int o = 0; o < N; ++o)
        if (o < columns) store(to + (long long)o * p.y_pixel, y[0][o], y[1][o], left);
    }
  }
  watched.template channels<1>();
  consumers_sync<CONSUMERS>();  // the next item's places may come
}
