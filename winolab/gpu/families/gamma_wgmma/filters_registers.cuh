// Products of gamma_wgmma/kernel.cuh with filters as wgmma's A, in registers: U comes to them from
// global memory, by way of the thread's own share of shared memory where U_AHEAD says so. V is B.
#pragma once

#include "filters.cuh"
#include "place.cuh"

constexpr int V_READERS = CONSUMERS / 32;  // that tell of a stage: a lane for its warp

struct FilterRing {
  uint4 u[PLACES][PARTS][U_AHEAD ? CONSUMERS : 1];  // a consumer's own filters
};
__device__ __forceinline__ void ring_init(FilterRing&) {}
__device__ __forceinline__ void bring(const GammaWgmmaParams&, FilterRing&, int) {}

// Filters of a stage, of a group's states, in the order of use, of TAPS of its filter rows.
template <int TAPS = SHARE>
constexpr int FILTERS = HELD * TAPS;
static_assert(FILTERS<> % RING == 0 && FILTERS<LAST> % RING == 0 && FILTERS<> % PLACES == 0 &&
                  FILTERS<LAST> % PLACES == 0,
              "the same places in every stage");
static_assert(REST == 0 || RING + U_AHEAD <= FILTERS<LAST>, "of this stage and the next");
static_assert(FOLD == 0 || (SKEW == 0 && PARTS == 2), "what is added is whole");
static_assert(U_AHEAD == 0 || U_AHEAD > SKEW, "a place is filled again after all of its parts left it");

// U on its way to a consumer thread, ahead of the products over stages and work tiles: RING filters in
// registers, U_AHEAD more in the thread's own share of shared memory, until L2 has brought them.
struct Filters {
  const GammaWgmmaParams& p;
  const Steps& steps;
  uint4* const places;    // the thread's, of every CONSUMERS-th vector
  const uint4 *u, *next;  // the thread's first vector of this stage; of the one that comes in
  int index, left;

  __device__ __forceinline__ Filters(const GammaWgmmaParams& p, const Steps& steps, FilterRing& ring)
      : p(p), steps(steps), places(&ring.u[0][0][U_AHEAD > 0 ? threadIdx.x : 0]),
        index(blockIdx.x / SPLIT_K), left(steps.end - steps.begin) {
    stage_at(steps.begin);
    u = next;
  }

  // Next is that stage of the work tile.
  __device__ __forceinline__ void stage_at(int step) {
    const int group = threadIdx.x / 128 * (rest(p, step) ? FILTERS<LAST> : FILTERS<>) * U_FILTER;
    next = p.u + (long long)(index % p.blocks_m) * rows_before(p, steps.all) * U_ROW +
           (rows_before(p, step) * U_ROW + group + threadIdx.x % 128);
  }

  __device__ __forceinline__ void walk() {
    if (--left == 0) {
      left = steps.end - steps.begin;
      index += gridDim.x / SPLIT_K;
      stage_at(steps.begin);
    } else if constexpr (REST > 0) {
      stage_at(steps.end - left);
    } else {
      next += SHARE * U_ROW;
    }
  }

  template <int TAPS>
  __device__ __forceinline__ void bring(int i) {
    if constexpr (U_AHEAD > 0) {
      if (i > 0 && i % FILTERS<TAPS> == 0) walk();
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        copy_async<16>(places + (i % PLACES * PARTS + part) * CONSUMERS,
                       next + (i % FILTERS<TAPS> * U_FILTER + part * 128), true);
      copy_async_commit();
    }
  }

  template <int TAPS>
  __device__ __forceinline__ void take(unsigned (&to)[4], int i, int part) const {
    uint4 v;
    if constexpr (U_AHEAD > 0)
      v = places[(i % PLACES * PARTS + part) * CONSUMERS];
    else
      v = __ldg((i < FILTERS<TAPS> ? u : next) + (i % FILTERS<TAPS> * U_FILTER + part * 128));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }

  __device__ __forceinline__ void fill(unsigned (&a)[RING][PARTS][4]) {
#pragma unroll
    for (int i = 0; i < RING; ++i) {
      bring<LAST>(i);
      copy_async_wait<0>();
#pragma unroll
      for (int part = 0; part < PARTS; ++part) take<LAST>(a[i][part], i, part);
    }
#pragma unroll
    for (int i = RING; i < RING + U_AHEAD; ++i) bring<SHARE>(i);
    copy_async_wait<0>();
  }

  // A stage is consumed next.
  __device__ __forceinline__ void stage() {
    if constexpr (U_AHEAD == 0) {
      u = next;
      walk();
    }
  }

  // A part of filter i of a stage is done with, its last before its first: the registers take that
  // of the filter RING later.
  template <int TAPS>
  __device__ __forceinline__ void refill(unsigned (&a)[RING][PARTS][4], int i, int part) {
    if (U_AHEAD > 0 && part == PARTS - 1) copy_async_wait<PLACES - 1 - (U_AHEAD > 0 ? SKEW : 0)>();
    take<TAPS>(a[i % RING][part], i + RING, part);
    if (part == 0) bring<TAPS>(i + RING + U_AHEAD);
  }
};

// A consumer group's products.
struct Products {
  const int group;
  Filters filters;
  unsigned a[RING][PARTS][4];

  __device__ __forceinline__ Products(const GammaWgmmaParams& p, const Steps& steps, FilterRing& ring,
                                      int group)
      : group(group), filters(p, steps, ring) {
    filters.fill(a);
  }

  __device__ __forceinline__ void start(const GammaWgmmaParams&, int) {}

  // Multiply a stage of V with TAPS filter rows; once it has been read, its barrier is told.
  template <int TAPS>
  __device__ __forceinline__ void multiply(float (&acc)[STEPS][SUMS], const unsigned char* stage,
                                           unsigned long long* empty) {
    filters.stage();
    unsigned long long v =
        matrix_descriptor(stage + group * HELD * PARTS * V_PART, V_TILES * 16, 128);
    float partial[32];
#pragma unroll
    for (int s = 0; s < HELD; ++s) {
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        // Products with a low part are small: SKEW rows ahead of high·high, they lose less.
#pragma unroll
        for (int f = 0; f < TAPS + SKEW; ++f) {
          const int i = s * TAPS + f, h = f - SKEW, offset = (f * COLUMNS + half * 64) * 16;
          // In 16 bits the Tensor Core alone sums all products.
          float(&sum)[32] = PARTS == 1 ? acc[s * HALVES + half] : partial;
          wgmma_fence();
          if (PARTS == 2 && f < TAPS) {
            wgmma<64, BF16>(sum, a[i % RING][0], descriptor_offset(v, offset + V_PART),
                            f > 0 && f != FOLD);
            wgmma<64, BF16>(sum, a[i % RING][PARTS - 1], descriptor_offset(v, offset), true);
          }
          if (h >= 0)
            wgmma<64, BF16>(sum, a[(i - SKEW) % RING][0],
                            descriptor_offset(v, offset - SKEW * COLUMNS * 16), true);
          wgmma_commit();
          if (f > 0 || (PARTS == 1 && s + half > 0)) {
            wgmma_wait<1>();
            if (PARTS == 1 && f == 0 ? half == 0 : half == HALVES - 1) {
              if (PARTS == 2) filters.refill<TAPS>(a, i - 1, 1);
              if (PARTS == 1 || h > 0) filters.refill<TAPS>(a, i - SKEW - 1, 0);
            }
          }
          if (f == FOLD - 1 && FOLD < TAPS) {
            wgmma_wait<0>();
            add(acc[s * HALVES + half], partial);
          }
        }
        if constexpr (PARTS == 2) {
          wgmma_wait<0>();
          if (half == HALVES - 1) {
            const int last = s * TAPS + TAPS - 1;
            if (SKEW == 0) filters.refill<TAPS>(a, last, 1);
            filters.refill<TAPS>(a, last, 0);
          }
          add(acc[s * HALVES + half], partial);
        }
      }
      v = descriptor_offset(v, PARTS * V_PART);
    }
    if constexpr (PARTS == 1) {
      wgmma_wait<0>();
      filters.refill<TAPS>(a, FILTERS<TAPS> - 1, 0);
    }
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
  }
};
