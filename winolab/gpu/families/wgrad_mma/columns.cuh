// What producers of kernel.cuh share: columns of x and dy as they lie, their transforms, U and V of a
// stage.
#pragma once

#include "elements.cuh"
#include "gradient_scheduler.cuh"
#include SEGMENTS_FILE
#include "pairs.cuh"
#include "pipe.cuh"
#include "pipeline.cuh"

constexpr int CONSUMERS = 256, THREADS = CONSUMERS + PRODUCERS;
constexpr int WARPS = CONSUMERS / 32;
constexpr int ROW_I = BI + PAD, ROW_O = BO + PAD;         // values from one unit's channels to the next
constexpr int ROW_OUT = BI + STAGED_PAD;                  // floats of a staged row, for float2's banks
constexpr int PAIRS_I = BI / 2, PAIRS_O = BO / 2;         // threads of a unit
constexpr int APART_I = PRODUCERS / PAIRS_I, APART_O = PRODUCERS / PAIRS_O;  // units at once
constexpr int GROUPS_I = KC / APART_I, GROUPS_O = KC / APART_O;
constexpr int TABLE = PRODUCERS / KC;  // steps whose units are described at once
static_assert(PRODUCERS % PAIRS_I == 0 && PRODUCERS % PAIRS_O == 0, "producer shape");
static_assert(KC % APART_I == 0 && KC % APART_O == 0, "producer shape");

struct WgradMmaShared {
  unsigned short u[STAGES][ALPHA * KC * ROW_I];  // [state][unit][input channel]
  unsigned short v[STAGES][ALPHA * KC * ROW_O];  // [state][unit][output channel]
  float out[(ALPHA > WARPS ? ALPHA : WARPS) * 8 * ROW_OUT];  // [state][sharer][row][input channel]
  Unit units[2 * PRODUCERS];
  unsigned long long full[STAGES], empty[STAGES];
};

// Two channels of one column, of which ``channels`` exist; zeros elsewhere.
__device__ __forceinline__ unsigned load_pair(const Element* from, int channels) {
  if constexpr (VECTOR)
    return channels > 0 ? __ldg(reinterpret_cast<const unsigned*>(from)) : 0;
  unsigned pair = channels > 0 ? __ldg(from) : 0;
  if (channels > 1) pair |= (unsigned)__ldg(from + 1) << 16;
  return pair;
}

// The columns of a unit, of x or of dy. Most units lie inside their rows and need no masks; a warp
// takes one of the two ways as a whole.
template <int COLUMNS>
__device__ __forceinline__ void load_columns(unsigned (&d)[COLUMNS], const Element* from, int pixel,
                                             int jump, unsigned mask, int left, int channels) {
  const bool inside = mask == (1u << COLUMNS) - 1 && (!WRAP || COLUMNS <= left) && channels > 1;
  if (__all_sync(~0u, inside)) {
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) d[i] = load_pair(from + i * pixel, 2);
  } else {
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i, from += pixel) {
      if (WRAP && i == left) from += jump;
      d[i] = load_pair(from, mask >> i & 1 ? channels : 0);
    }
  }
}

template <bool X, class Columns, class States>
__device__ __forceinline__ void transform(const Columns& columns, States& states) {
  if constexpr (X)
    transform_input(columns, states);
  else
    transform_filter(columns, states);
}

// Both channels' states, each transformed in FP32 and rounded once; with HALF2 in 16 bits.
template <bool X, int COLUMNS>
__device__ __forceinline__ void store_states(unsigned short* to, const unsigned (&d)[COLUMNS]) {
  unsigned states[ALPHA];
  if constexpr (HALF2) {
    Half2 column[COLUMNS], state[ALPHA];
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) column[i] = {d[i]};
    transform<X>(column, state);
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) states[s] = state[s].bits;
  } else {
    float column[2][COLUMNS], state[2][ALPHA];
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) unpack<INPUT == 2>(d[i], column[0][i], column[1][i]);
#pragma unroll
    for (int c = 0; c < 2; ++c) transform<X>(column[c], state[c]);
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) states[s] = pack<INPUT == 2>(state[0][s], state[1][s]);
  }
#pragma unroll
  for (int s = 0; s < ALPHA; ++s)
    *reinterpret_cast<unsigned*>(to + s * KC * (X ? ROW_I : ROW_O)) = states[s];
}
