// The epilogue of gamma_tensor.cuh where a block sums alone. Every output of a tile needs all states,
// of which each consumer warpgroup has half, in the same thread: thread to thread they exchange half
// of the tiles, eight at a time by way of two buffers, apply AT to the others and store. Producers
// and loaders go on; loaders that order no boxes have described the item meanwhile: where its outputs
// lie, and what they are scaled back by (describing takes 1,200 cycles, latencies one behind another).

constexpr int CHUNKS = BT / 16;  // of 8 tiles, of a warpgroup
constexpr int DESCRIBERS = LOADERS ? LOADERS - 32 : CONSUMERS;

struct Staging {
  float4 box[2][2][HELD][128];  // of a chunk, for a warpgroup, from the other one
  long long first[BT];          // of a tile: its first output in y
  int columns[BT];              // its outputs along the width; 0: none
  Factors factors[BN];
  int channel;  // of the item, the first
  unsigned long long described, read;
};

using Delivered = Pipe<1>;
__device__ __forceinline__ void staging_init(Staging& staging) {
  barrier_init(&staging.described, DESCRIBERS);
  barrier_init(&staging.read, CONSUMERS / 32);
}
__device__ __forceinline__ void meet() {}
__device__ __forceinline__ void finish(const Params&, Staging&, int, Delivered&, float) {}

// Describe an item, by COUNT threads.
template <int COUNT>
__device__ __forceinline__ void places(const Params& p, Staging& staging, int index, int thread) {
#pragma unroll 1
  for (int first = 0; first < BT; first += COUNT) {
    unsigned tile = first + thread;
    asm volatile("" : "+r"(tile));  // nothing of it is kept for the next round, in 24 registers
    if (BT % COUNT > 0 && tile >= BT) break;
    const Item item(p, index);
    const int at = item.column + tile % COLUMNS, row = item.row + tile / COLUMNS;
    const Place column(p, at);
    const bool inside = at < p.columns && row < p.out_height;
    staging.columns[tile] = inside ? min(N, p.out_width - column.first) : 0;
    staging.first[tile] = column.batch * p.y_batch + column.depth * p.y_depth + row * p.y_row +
                          (long long)column.first * p.y_pixel;
  }
}
template <int COUNT>
__device__ __forceinline__ void factors(const Params& p, Staging& staging, int index, int thread,
                                        float back) {
  const int channel = Item(p, index).block_m * BN;
  if (thread == 0) staging.channel = channel;
#pragma unroll 1
  for (int m = thread; m < BN; m += COUNT)
    staging.factors[m] = Factors(p.rows + channel + m, back);
}

// By loaders' other warps: the last one about channels, the others about tiles.
__device__ __forceinline__ void attend(const Params& p, Staging& staging) {
  const int thread = threadIdx.x - (THREADS - DESCRIBERS);
  Pipe<1> pipe;
  if (thread < DESCRIBERS - 32) {
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index += gridDim.x, pipe.advance()) {
      barrier_wait(&staging.read, pipe.phase ^ 1);
      places<DESCRIBERS - 32>(p, staging, index, thread);
      barrier_arrive(&staging.described);
    }
  } else {
    const float back = inverse_of(input_scale(p.header));
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index += gridDim.x, pipe.advance()) {
      barrier_wait(&staging.read, pipe.phase ^ 1);
      factors<32>(p, staging, index, thread % 32, back);
      barrier_arrive(&staging.described);
    }
  }
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
template <int GROUP>
__device__ __forceinline__ void give(Staging& staging, const float (&acc)[STEPS][32], int i) {
#pragma unroll
  for (int s = 0; s < HELD; ++s) {
    const float* its = chunk_of(acc, s, 1 - GROUP, i);
    staging.box[i % 2][1 - GROUP][s][threadIdx.x % 128] = make_float4(its[0], its[1], its[2], its[3]);
  }
}

// A warpgroup's half of an item. A thread has channels 2g and 2g + 1 of its warp's 16.
template <int GROUP>
__device__ __forceinline__ void deliver(const Params& p, Staging& staging,
                                        const float (&acc)[STEPS][32], const Delivered& pipe) {
  const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  const int own = thread / 32 * 16 + lane / 4 * 2;
  give<GROUP>(staging, acc, 0);
  if constexpr (LOADERS > 0) barrier_wait(&staging.described, pipe.phase);
  consumers_sync<CONSUMERS>();  // chunk 0 has been given
  const int channel = staging.channel + own, left = WHOLE ? 2 : p.out_channels - channel;
  Watched<2> watched(p.header, staging.factors + own);
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    if (i > 0) consumers_sync<CONSUMERS>();  // chunk i has been given, and chunk i - 1 read
    if (i + 1 < CHUNKS) give<GROUP>(staging, acc, i + 1);
    float state[4][ALPHA];  // of channels and tiles, as accumulators are
#pragma unroll
    for (int s = 0; s < HELD; ++s) {
      const float4 v = staging.box[i % 2][GROUP][s][thread];
      const float got[4] = {v.x, v.y, v.z, v.w};
      const float* mine = chunk_of(acc, s, GROUP, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        state[e][GROUP * HELD + s] = mine[e];
        state[e][(1 - GROUP) * HELD + s] = got[e];
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int tile = (GROUP * CHUNKS + i) * 8 + lane % 4 * 2 + c;
      float y[2][N];
      transform_output(state[c], y[0]);
      transform_output(state[2 + c], y[1]);
      Output* to = p.y + (staging.first[tile] + channel);
      const int columns = WHOLE ? N : left > 0 ? staging.columns[tile] : 0;
      watched.tile(y, columns);
#pragma unroll
      for (int o = 0; o < N; ++o, to += p.y_pixel)
        if (o < columns) store(to, y[0][o], y[1][o], left);
    }
  }
  watched.template channels<1>();
}

// By consumers, with an item's accumulators.
__device__ __forceinline__ void deliver(const Params& p, Staging& staging,
                                        const float (&acc)[STEPS][32], int group, int index,
                                        Delivered& pipe) {
  if constexpr (LOADERS == 0) {
    places<CONSUMERS>(p, staging, index, threadIdx.x);
    factors<CONSUMERS>(p, staging, index, threadIdx.x, inverse_of(input_scale(p.header)));
  }
  if (group == 0)
    deliver<0>(p, staging, acc, pipe);
  else
    deliver<1>(p, staging, acc, pipe);
  if constexpr (LOADERS == 0) {
    consumers_sync<CONSUMERS>();  // the next item's places may come
  } else {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&staging.read);
    pipe.advance();
  }
}
