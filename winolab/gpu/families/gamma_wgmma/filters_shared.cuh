// Products of gamma_wgmma/kernel.cuh with filters as wgmma's B, from shared memory: 7 % less goes
// through it. A warp for each group of consumers brings U by bulk copies, a state at a time (a row
// of it at a time is 8 % slower); of two blocks that have the same filters (MULTICAST), each brings
// one group's for both. V is A, in registers: a warp's tiles are two units of eight in neighbouring
// rows, so that the second unit of a filter row is the first of the next.
#pragma once

#include "multicast.cuh"
#include "filters.cuh"
#include "place.cuh"

constexpr int V_READERS = CONSUMERS;  // that tell of a stage: racecheck follows no lane for its warp
constexpr int U_BYTES = U_FILTER * 16;  // of a filter row of a state

struct FilterRing {
  alignas(128) unsigned char u[U_RING][2][SHARE * U_BYTES];  // of a group: [row][part][k / 8][m][k % 8]
  unsigned long long full[U_RING][2], empty[U_RING][2];
};
__device__ __forceinline__ void ring_init(FilterRing& ring) {
#pragma unroll
  for (int i = 0; i < U_RING * 2; ++i) {
    barrier_init(&ring.full[i / 2][i % 2], 1);
    barrier_init(&ring.empty[i / 2][i % 2], CONSUMERS / 2 / 32 * MULTICAST);
  }
}

// Outputs of a block that U has, one behind the other also in shared memory: NARROW, not 0, in the
// last.
__device__ __forceinline__ int outputs_of(const GammaWgmmaParams& p, int block_m) {
  return NARROW > 0 && block_m == p.blocks_m - 1 ? NARROW : BM;
}

// By a lane: a group's filters, over stages and work tiles.
__device__ __forceinline__ void bring(const GammaWgmmaParams& p, FilterRing& ring, int group) {
  static_assert(SPLIT_K == 1, "all stages of a work tile");
  const bool mine = MULTICAST == 1 || cluster_rank() == group;
  Pipe<U_RING> pipe;
#pragma unroll 1
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const int rows = p.taps_height / SHARE, stages = p.chunks * p.taps_width;  // of stages; of a row
    int left = p.taps_depth * rows;
    const int block_m = work_at(p, index).block_m;
    unsigned at = block_m * rows_before(p, left * stages) * U_ROW;  // in vectors
    const int outputs = outputs_of(p, block_m);
#pragma unroll 1
    for (; left > 0; --left) {
      const int taps = REST > 0 && left % rows == 1 % rows ? LAST : SHARE;
      const int size = taps * (PARTS * 2) * outputs;
      at += group * HELD * size;
#pragma unroll 1
      for (int stage = 0; stage < stages; ++stage, at += HELD * size)
#pragma unroll 1
        for (int s = 0; s < HELD; ++s, at += size) {
          unsigned long long* full = &ring.full[pipe.stage][group];
          barrier_wait(&ring.empty[pipe.stage][group], pipe.phase ^ 1);
          barrier_arrive_expect(full, size * 16);
          if (mine) bulk_copy_to_all<MULTICAST>(ring.u[pipe.stage][group], p.u + at, size * 16, full);
          pipe.advance();
        }
      at -= group * HELD * size;
    }
  }
}

constexpr int UNITS = COLUMNS / 8;               // of a row of tiles
constexpr int UNIT_STEP = ROWS > 1 ? UNITS : 1;  // to a warp's next unit
// The first unit of a warp, of a half of the tiles.
__device__ __forceinline__ int first_unit(int half, int warp) {
  const int pair = half * 4 + warp;
  return ROWS > 1 ? pair / UNITS * 2 * UNITS + pair % UNITS : pair * 2;
}
__device__ __forceinline__ int tile_of(int half, int row, int thread) {
  return (first_unit(half, thread / 32) + row * UNIT_STEP) * 8 + thread % 32 / 4;
}

// A consumer group's products.
struct Products {
  const int group;
  FilterRing& ring;
  Pipe<U_RING> pipe;
  bool narrow = false;  // whether the work tile's block has NARROW outputs
  int place;  // in a state's part of V, of what a lane addresses of the first two units

  __device__ __forceinline__ Products(const GammaWgmmaParams&, const Steps&, FilterRing& ring, int group)
      : group(group), ring(ring) {
    const int lane = threadIdx.x % 32, unit = first_unit(0, threadIdx.x % 128 / 32);
    place = (lane / 16 * V_TILES + (unit + lane / 8 % 2 * UNIT_STEP) * 8 + lane % 8) * 16;
  }

  // Reads a part of a state for filter rows FIRST on: for each its unit of that number and the next. A
  // fragment takes neighbouring registers, so every other one is put together from its neighbours'.
  template <int FIRST>
  __device__ __forceinline__ void read(unsigned (&a)[SHARE][4], const unsigned char* v) const {
#pragma unroll
    for (int f = FIRST; f < SHARE; ++f)
      if (f % 2 == 0 || f == SHARE - 1) load_matrices(a[f], v + place + f * UNIT_STEP * 128);
#pragma unroll
    for (int f = 1; f < SHARE - 1; f += 2) {
      a[f][0] = a[f - 1][1], a[f][2] = a[f - 1][3];
      a[f][1] = a[f + 1][0], a[f][3] = a[f + 1][2];
    }
  }

  __device__ __forceinline__ void start(const GammaWgmmaParams& p, int index) {
    narrow = NARROW > 0 && outputs_of(p, work_at(p, index).block_m) < BM;
  }

  // Multiply a stage of V with TAPS filter rows; once it has been read, its barrier is told.
  template <int TAPS>
  __device__ __forceinline__ void multiply(float (&acc)[STEPS][SUMS], const unsigned char* stage,
                                           unsigned long long* empty) {
    if (NARROW > 0 && narrow)
      multiply_outputs<TAPS, NARROW ? NARROW : BM>(acc, stage, empty);
    else
      multiply_outputs<TAPS, BM>(acc, stage, empty);
  }

  template <int TAPS, int OUTPUTS>
  __device__ __forceinline__ void multiply_outputs(float (&acc)[STEPS][SUMS],
                                                   const unsigned char* stage,
                                                   unsigned long long* empty) {
    constexpr int ROW = OUTPUTS * PARTS * KC * 2;  // bytes of a filter row of a state
    const unsigned char* states = stage + group * HELD * PARTS * V_PART;
    const auto of = [states](int now) {  // halves are as far apart for every warp
      return states + now / HALVES * PARTS * V_PART + first_unit(now % HALVES, 0) * 128;
    };
    float partial[OUTPUTS / 2];
    unsigned low[SHARE][4], high[SHARE][4], first[2][4];  // first: of high, in turn
    const auto begin = [&](int now) {
      read<0>(low, of(now) + V_PART);
      load_matrices(first[now % 2], of(now) + place);
    };
    begin(0);
#pragma unroll
    for (int now = 0; now < STEPS; ++now) {
      if (now % HALVES == 0) barrier_wait(&ring.full[pipe.stage][group], pipe.phase);
      const unsigned long long u = matrix_descriptor(ring.u[pipe.stage][group], OUTPUTS * 16, 128);
#pragma unroll
      for (int i = 0; i < 4; ++i) high[0][i] = first[now % 2][i];
      // Products with a low part are small: they come first, and lose less. High parts are read
      // meanwhile, the next low ones behind them (0 to 3 % faster than SKEW rows apart).
      wgmma_fence();
#pragma unroll
      for (int f = 0; f < TAPS; ++f)
        wgmma<OUTPUTS, BF16>(partial, low[f], descriptor_offset(u, f * ROW), f > 0);
      wgmma_commit();  // behind them the low parts are free
      read<1>(high, of(now));
      wgmma_fence();
#pragma unroll
      for (int f = 0; f < TAPS; ++f)
        wgmma<OUTPUTS, BF16>(partial, high[f], descriptor_offset(u, f * ROW + ROW / 2), true);
#pragma unroll
      for (int f = 0; f < TAPS; ++f)
        wgmma<OUTPUTS, BF16>(partial, high[f], descriptor_offset(u, f * ROW), true);
      wgmma_commit();
      if (now + 1 < STEPS) {
        wgmma_wait<1>();
        begin(now + 1);
      } else {
        barrier_arrive(empty);
      }
      wgmma_wait<0>();
      if (now % HALVES == HALVES - 1) {
        if (threadIdx.x % 32 < MULTICAST)
          barrier_arrive_at<MULTICAST>(&ring.empty[pipe.stage][group], threadIdx.x % 32);
        pipe.advance();
      }
      add(acc[now], partial);
    }
  }
};
