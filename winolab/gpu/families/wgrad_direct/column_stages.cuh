// Block shape, registers and shared memory of columns.cuh.
#pragma once

#include "elements.cuh"
#include "column_sweep.cuh"

constexpr int GROUPS = 2, THREADS = 128 * GROUPS + PRODUCERS;
constexpr int COPIED = PRODUCERS / 8, COPIES = KS / COPIED;  // positions at once; of a thread
// Warpgroups have 64 output channels each, or half of the taps for the same ones.
constexpr int GROUPS_M = BO / 64, GROUP_TAPS = GROUPS_M * TAPS / GROUPS;
constexpr int PLANES = BI / 64;  // of 64 channels
constexpr int WIDTH = GROUP_TAPS * BI;  // of a warpgroup's sums: taps and channels
constexpr int RESULTS = 128 * GROUPS;   // threads that have sums
// The first columns of x's ring lie behind its last once more: neighbours are neighbours in memory.
constexpr int SLOTS = RING + TAPS - 1;
// Registers of the launch are handed from the producers to those that multiply.
constexpr int PRODUCER_REGISTERS = WIDTH > 320 ? 56 : 64, LAUNCHED = 65536 / THREADS / 8 * 8;
constexpr int CONSUMER_REGISTERS =
    (LAUNCHED * THREADS - PRODUCER_REGISTERS * PRODUCERS) / (128 * GROUPS) / 8 * 8;
static_assert(GROUP_TAPS * GROUPS == GROUPS_M * TAPS && KS % COPIED == 0 && COPIES <= 8 &&
                  WIDTH / 2 % RUN == 0,
              "block shape");

using SumParams = ColumnParams;
struct Finished {  // sums are results
  __device__ __forceinline__ explicit Finished(const SumParams&) {}
  __device__ __forceinline__ float operator()(float sum) const { return sum; }
};

struct ColumnsShared {
  unsigned short dy[STAGES][GROUPS_M][KS * 64];  // [plane][position][64 channels]
  unsigned short x[SLOTS][PLANES][KS * 64];
  unsigned long long full[STAGES], empty[STAGES];
  ColumnScheduler consumed, produced;
  RowSource<Element> source;
};
