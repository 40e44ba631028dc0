// The output transform of the fused kernel: consumers put their sums into shared memory in rounds, as
// the layout says, and each reads those of two pairs of a filter and a tile, transforms and stores.
#pragma once

#include "block.cuh"

using FusedSums = float[HELD][TT][TM];

// A vector of sums: WIDTH of a lane's tiles from the ``j``-th on, STEP apart.
__device__ __forceinline__ void put(float* to, const float (&acc)[TT][TM], int j, int i) {
  if constexpr (WIDTH == 4)
    *reinterpret_cast<float4*>(to) = make_float4(acc[j][i], acc[j + STEP][i], acc[j + 2 * STEP][i],
                                                 acc[j + 3 * STEP][i]);
  else if constexpr (WIDTH == 2)
    *reinterpret_cast<float2*>(to) = make_float2(acc[j][i], acc[j + STEP][i]);
  else
    *to = acc[j][i];
}

// The sums of a round; ``round`` is a constant where loops are unrolled.
__device__ __forceinline__ void stage(float* out, const FusedSums& acc, int round, unsigned thread) {
  const unsigned warp = thread / 32, lane = thread % 32;
  if (!layout_active(lane, round)) return;
#pragma unroll
  for (int s = 0; s < HELD; ++s)
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        const int j = layout_first(v);
        if (layout_holds(round, i, j))
          put(out + layout_state_of(warp, lane, s) * PLANE +
                  layout_address(layout_filter_of(lane, i), layout_tile_of(lane, j)),
              acc[s], j, i);
      }
}

// The outputs of one filter and tile, from its states.
__device__ __forceinline__ void transform_states(const float* from, float (&y)[OUTPUTS]) {
  float half[N][ALPHA];  // transformed along the height
#pragma unroll
  for (int j = 0; j < ALPHA; ++j) {
    float column[ALPHA], sums[N];
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) column[i] = from[(i * ALPHA + j) * PLANE];
    transform_output(column, sums);
#pragma unroll
    for (int i = 0; i < N; ++i) half[i][j] = sums[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float row[N];
    transform_output(half[i], row);
#pragma unroll
    for (int j = 0; j < N; ++j) y[i * N + j] = row[j];
  }
}

// A number as y has it, and two neighbours, which lie aligned.
__device__ __forceinline__ void store_one(Stored* to, float v) {
  if constexpr (SPLIT)
    *to = v;
  else
    store_sum(reinterpret_cast<Out*>(to), v);
}
__device__ __forceinline__ void store_two(Stored* to, float first, float second) {
  if constexpr (SPLIT || OUTPUT == 0)
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
  else
    *reinterpret_cast<unsigned*>(to) = pack<OUTPUT == 2>(first, second);
}

// Results of a thread's two tiles for those of its own: an even thread's second for the odd one's first.
__device__ __forceinline__ void exchange(float (&y)[2][OUTPUTS], unsigned thread) {
  const bool odd = thread % 2;
#pragma unroll
  for (int k = 0; k < OUTPUTS; ++k) {
    const float other = __shfl_xor_sync(~0u, odd ? y[0][k] : y[1][k], 1);
    if (odd)
      y[0][k] = other;
    else
      y[1][k] = other;
  }
}

// A round's outputs. YVEC 2: those of a thread's two pairs are neighbours in y, and 8-byte aligned.
__device__ __forceinline__ void store(const Fused2dParams& p, const FusedPlace& place,
                                      const float* out, int round, unsigned thread) {
  float y[2][OUTPUTS];
  Stored* to[2];
  unsigned there[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int m = layout_pair_filter(round, thread, e), tile = layout_pair_tile(round, thread, e);
    transform_states(out + layout_address(m, layout_read_tile(round, thread, e)), y[e]);
    to[e] = p.y + place.offset[tile] + (place.first + m) * p.y_channel;
    there[e] = place.first + m < p.out_channels ? (unsigned)place.outputs[tile] : 0;
  }
  if constexpr (SHUFFLED) exchange(y, thread);
#ifdef EPILOGUE
#pragma unroll
  for (int e = 0; e < (SPLIT ? 0 : 2); ++e) {  // of parts of a sum split_k.cuh applies it
    const int channel = place.first + layout_pair_filter(round, thread, e);
    const auto* first = reinterpret_cast<const Out*>(p.y);
#pragma unroll
    for (int k = 0; k < OUTPUTS; ++k) {
      const auto* at = reinterpret_cast<const Out*>(to[e]) + k / N * p.y_row + k % N * p.y_pixel;
      if (there[e] >> k & 1) y[e][k] = finish_channel(p.epilogue, y[e][k], at, first, channel);
    }
  }
#endif
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int k = i * N + j;
      const long long at = i * p.y_row + j * p.y_pixel;
      if constexpr (YVEC == 2) {
        if (there[0] >> k & 1) store_two(to[0] + at, y[0][k], y[1][k]);
      } else {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (there[e] >> k & 1) store_one(to[e] + at, y[e][k]);
      }
    }
}

// All rounds. With two buffers the sums of a round are put while those before are transformed.
__device__ __forceinline__ void finish(const Fused2dParams& p, Fused2dShared& shared, const FusedSums& acc,
                                       const FusedPlace& place, unsigned thread) {
#ifdef LEFT_OUT
  if constexpr ((LEFT_OUT & OUTPUT_TRANSFORM) != 0) {
    if (p.part != -1) return;  // always, which no compiler knows: sums are computed
#pragma unroll
    for (int s = 0; s < HELD; ++s)
#pragma unroll
      for (int j = 0; j < TT; ++j)
#pragma unroll
        for (int i = 0; i < TM; ++i)
          reinterpret_cast<float*>(p.y)[((s * TT + j) * TM + i) * CONSUMERS + thread] = acc[s][j][i];
    return;
  }
#endif
  // Else what addresses have of it is kept in registers through the products, which need them.
  asm volatile("" : "+r"(thread));
  stage(shared.out[0], acc, 0, thread);
  consumers_sync<CONSUMERS>();
#pragma unroll
  for (int round = 0; round < ROUNDS; ++round) {
    const bool more = round + 1 < ROUNDS;
    float* next = shared.out[(round + 1) % BUFFERS];
    if (BUFFERS == 2 && more) stage(next, acc, round + 1, thread);
    store(p, place, shared.out[round % BUFFERS], round, thread);
    consumers_sync<CONSUMERS>();
    if (BUFFERS == 1 && more) {
      stage(next, acc, round + 1, thread);
      consumers_sync<CONSUMERS>();
    }
  }
}
