// The epilogue of gamma_wgmma/kernel.cuh where a block sums alone.
//
// Every output of a tile needs all states, and each consumer warpgroup has half of them, in the
// same thread. So consumers exchange half of the sums thread to thread (outputs_*.cuh), a chunk at
// a time through EXCHANGES buffers, apply AT and store. Producers and loaders go on; loaders that
// order no copies have described the work tile meanwhile: where its outputs lie, and what they are
// scaled back by (describing takes 1,200 cycles, latencies one behind another).
//
// Barriers: who arrives → who waits
//   staging.described   the describing warps → consumers
//   staging.read        a lane of each consumer warp → the describing warps
//   named 1             consumers, between chunks of the exchange
#pragma once

#include OUTPUTS_FILE

constexpr int DESCRIBERS = LOADERS ? LOADERS - 32 - FILTER_LOADERS : CONSUMERS;

struct Staging {
  float4 box[EXCHANGES][2][HELD][128];  // of a chunk, for a warpgroup, from the other one
  long long first[BT];                  // of a tile: its first output in y
  int words[BT];                        // place.cuh: its outputs along the width, their scale
  BlockFactors<BM> factors;
  int channel;  // of the work tile, the first
  unsigned long long described, read;
};

using Delivered = Pipe<1>;
__device__ __forceinline__ void staging_init(Staging& staging) {
  barrier_init(&staging.described, DESCRIBERS);
  barrier_init(&staging.read, CONSUMERS / 32);
}
__device__ __forceinline__ void meet() {}
__device__ __forceinline__ void finish(const GammaWgmmaParams&, Staging&, int, Delivered&) {}

// Describe a work tile, by COUNT threads.
template <int COUNT>
__device__ __forceinline__ void places(const GammaWgmmaParams& p, Staging& staging, int index, int thread) {
  const float scale = input_scale(p.header);  // anew: registers are few
#pragma unroll 1
  for (int first = 0; first < BT; first += COUNT) {
    unsigned tile = first + thread;
    asm volatile("" : "+r"(tile));  // nothing of it is kept for the next round, in 24 registers
    if (BT % COUNT > 0 && tile >= BT) break;
    const GammaWorkTile work = work_at(p, index);
    const int at = work.column + tile % COLUMNS;
    TilePlace column(p, at);
    const int row = column.down(p, work.row + tile / COLUMNS);
    const int columns = column.outputs(p, at, row);
    float back = 0.0f;
    if constexpr (PARTS == 2) {
      const int image = min(column.batch, p.batch - 1);
      back = inverse_of(BY_IMAGE ? image_scale(p.header, scale, image) : scale);
    }
    staging.words[tile] = word_of(columns, STARTS && column.first == 0, back);
    staging.first[tile] = column.batch * p.y_batch + column.depth * p.y_depth + row * p.y_row +
                          (long long)column.first * p.y_pixel;
  }
}
template <int COUNT>
__device__ __forceinline__ void factors(const GammaWgmmaParams& p, Staging& staging, int index, int thread) {
  const int channel = work_at(p, index).block_m * BM;
  if (thread == 0) staging.channel = channel;
#pragma unroll 1
  for (int m = thread; m < BM; m += COUNT)
    staging.factors.set(m, ChannelFactors(p.rows + channel + m));
}

// By the last DESCRIBERS: their last warp about channels, the others, or it too, about tiles.
__device__ __forceinline__ void attend(const GammaWgmmaParams& p, Staging& staging) {
  constexpr int OTHERS = DESCRIBERS > 32 ? DESCRIBERS - 32 : 32;
  const int thread = threadIdx.x - (THREADS - DESCRIBERS);
  const bool last = thread >= DESCRIBERS - 32;
  Pipe<1> pipe;
#pragma unroll 1
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x, pipe.advance()) {
    barrier_wait(&staging.read, pipe.phase ^ 1);
    if (thread < OTHERS) places<OTHERS>(p, staging, index, thread);
    if (last) factors<32>(p, staging, index, thread % 32);
    barrier_arrive(&staging.described);
  }
}

// To the other warpgroup, what it needs of a chunk.
template <int GROUP>
__device__ __forceinline__ void give(Staging& staging, const float (&acc)[STEPS][SUMS], int i) {
#pragma unroll
  for (int s = 0; s < HELD; ++s)
    staging.box[i % EXCHANGES][1 - GROUP][s][threadIdx.x % 128] = chunk_of(acc, s, 1 - GROUP, i);
}

// A warpgroup's half of a work tile.
template <int GROUP>
__device__ __forceinline__ void deliver(const GammaWgmmaParams& p, Staging& staging,
                                        const float (&acc)[STEPS][SUMS], const Delivered& pipe) {
  give<GROUP>(staging, acc, 0);
  if constexpr (LOADERS > 0) barrier_wait(&staging.described, pipe.phase);
  consumers_sync<CONSUMERS>();  // chunk 0 has been given
  Outputs<GROUP> outputs(p, staging.first, staging.words, staging.factors, staging.channel);
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    if (i > 0) consumers_sync<CONSUMERS>();  // chunk i - 1 has been read and, of two buffers, i given
    if (EXCHANGES > 1) {
      if (i + 1 < CHUNKS) give<GROUP>(staging, acc, i + 1);
    } else if (i > 0) {
      give<GROUP>(staging, acc, i);
      consumers_sync<CONSUMERS>();  // chunk i has been given
    }
    float state[4][ALPHA];
#pragma unroll
    for (int s = 0; s < HELD; ++s) {
      const float4 mine = chunk_of(acc, s, GROUP, i);
      const float4 got = staging.box[i % EXCHANGES][GROUP][s][threadIdx.x % 128];
      state[0][GROUP * HELD + s] = mine.x, state[0][(1 - GROUP) * HELD + s] = got.x;
      state[1][GROUP * HELD + s] = mine.y, state[1][(1 - GROUP) * HELD + s] = got.y;
      state[2][GROUP * HELD + s] = mine.z, state[2][(1 - GROUP) * HELD + s] = got.z;
      state[3][GROUP * HELD + s] = mine.w, state[3][(1 - GROUP) * HELD + s] = got.w;
    }
    outputs.chunk(p, i, state);
  }
  outputs.end(p);
}

// By consumers, with a work tile's accumulators.
__device__ __forceinline__ void deliver(const GammaWgmmaParams& p, Staging& staging,
                                        const float (&acc)[STEPS][SUMS], int group, int index,
                                        Delivered& pipe) {
  if constexpr (LOADERS == 0) {
    places<CONSUMERS>(p, staging, index, threadIdx.x);
    factors<CONSUMERS>(p, staging, index, threadIdx.x);
  }
  if (group == 0)
    deliver<0>(p, staging, acc, pipe);
  else
    deliver<1>(p, staging, acc, pipe);
  if constexpr (LOADERS == 0) {
    consumers_sync<CONSUMERS>();  // the next work tile's places may come
  } else {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&staging.read);
    pipe.advance();
  }
}
