// Block shape, registers and shared memory of split.cuh.
#pragma once

#include "elements.cuh"
#include "parts.cuh"
#include "scale.cuh"
#include "column_sweep.cuh"

constexpr int GROUPS = 2, THREADS = 128 * GROUPS + PRODUCERS;
// Warpgroups have 64 output channels each, or half of the taps for the same ones.
constexpr int GROUPS_M = BO / 64, GROUP_TAPS = GROUPS_M * TAPS / GROUPS;
constexpr int PLANE = BI < 64 ? BI : 64, PLANES = BI / PLANE;  // channels of x, one row of a swizzle
constexpr int WIDTH = GROUP_TAPS * BI;       // of a warpgroup's sums: taps and channels
constexpr int RESULTS = 128 * GROUPS;        // threads that have sums
constexpr int LINES_M = BO / 32, LINES_N = BI / 32, LINES = LINES_M + LINES_N;  // of 32 channels
constexpr int EACH = KS * 8 / PRODUCERS;  // positions of a thread
// Registers of the launch are handed from the producers, as far as these can spare them, to those that
// multiply: for sums, partial ones and dy. (With 112 instead of 144 three taps take a quarter longer.)
constexpr int HELD = WIDTH / 2 + PLANE / 2 + 8 * DEPTH;
constexpr int PRODUCER_REGISTERS = PRODUCERS > 128 ? 112 : HELD <= 160 ? 144 : LINES > 4 ? 128 : 120;
constexpr int LAUNCHED = 65536 / THREADS / 8 * 8;
constexpr int CONSUMER_REGISTERS =
    (LAUNCHED * THREADS - PRODUCER_REGISTERS * PRODUCERS) / (128 * GROUPS) / 8 * 8;
static_assert(GROUP_TAPS * GROUPS == GROUPS_M * TAPS && (EACH == 2 || EACH == 4) &&
                  KS % (16 * DEPTH) == 0 && WIDTH / 2 % RUN == 0,
              "block shape");

struct SplitParams : ColumnParams {
  Header* x_header;  // its flags are the call's
  Header* dy_header;
};
using SumParams = SplitParams;

struct SplitShared {
  unsigned short dy[STAGES][PARTS][GROUPS_M][KS * 64];  // [plane][position][channels]
  unsigned short x[RING][PARTS][PLANES][KS * PLANE];
  // A thread's vectors of the next stage, on their way; in the end, producers' sums of squares.
  float4 raw[LINES][EACH][PRODUCERS];
  float squares[BO + BI];  // of dy's and x's channels, of a share
  unsigned long long full[STAGES], empty[STAGES], squares_full, squares_empty;
  ColumnScheduler consumed, produced;
  RowSource<Element> source;
};

// Sums are of scaled numbers.
struct Finished {
  float first, last;  // the smaller factor first: the other one may overflow
  __device__ __forceinline__ explicit Finished(const SumParams& params) {
    const float back_x = inverse_of(input_scale(params.x_header));
    const float back_dy = inverse_of(input_scale(params.dy_header));
    first = fminf(back_x, back_dy), last = fmaxf(back_x, back_dy);
  }
  __device__ __forceinline__ float operator()(float sum) const {
    return __fmul_rn(__fmul_rn(sum, first), last);
  }
};
