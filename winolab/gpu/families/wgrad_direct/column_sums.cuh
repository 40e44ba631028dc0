// Where a thread's sums go in direct filter gradients by columns. ``Finished`` makes results of them.
#pragma once

#include "exchanged.cuh"
#include "gradient_scheduler.cuh"

// Whether dw, of 16 bits, takes vectors of eight neighbouring input channels.
__device__ __forceinline__ bool in_vectors(const GradientParams& p) {
  constexpr int VECTOR = 8;
  const long long strides = p.dw_out | p.dw_depth | p.dw_row | p.dw_tap | p.channels;
  return p.dw_in == 1 && strides % VECTOR == 0 &&
         reinterpret_cast<unsigned long long>(p.dw) % 16 == 0;
}

// Whether sums in FP32 are stored as pairs: with six taps of 64 x 64 channels two registers spill then.
constexpr bool PAIRED = sizeof(Out) == 4 && BO > 64;

// A run of a thread's sums, from the first on, to dw.
template <int COUNT, class To = Out>
__device__ __forceinline__ void store(const SumParams& params, const GradientWorkTile& work, int thread,
                                      int first, const float (&sums)[COUNT]) {
  static_assert(COUNT % 8 == 0, "whole vectors");
  const GradientParams& p = params.sum;
  const Finished finished(params);
  const int group_m = thread / 128 % GROUPS_M, tap0 = thread / 128 / GROUPS_M * GROUP_TAPS;
  const int out = work.out + group_m * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
  To* const dw = p.dw + (work.group * p.out_channels + out) * p.dw_out +
                 work.tap_depth * p.dw_depth + work.tap_height * p.dw_row +
                 work.tap_width * p.dw_tap + work.in * p.dw_in;
  // Where the i-th sum's channels go, from the one of that number on; ``ins``: how many are left there.
  const auto place = [&](int i, int channel, int& ins) -> To* {
    const int column = i / 4 * 8 + channel, down = i / 2 % 2 * 8, tap = tap0 + column / BI;
    ins = p.channels - work.in - column % BI;
    const bool there = ins > 0 && out + down < p.out_channels && work.tap_width + tap < p.taps_width;
    return there ? dw + down * p.dw_out + tap * p.dw_tap + column % BI * p.dw_in : nullptr;
  };
  int ins;
  if constexpr (sizeof(To) == 2) {
    if (in_vectors(p)) {
#pragma unroll
      for (int j = 0; j < COUNT; j += 8) {  // two times eight channels of two rows, a lane eight
        unsigned pairs[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          To low, high;
          store_sum(&low, finished(sums[j + 2 * k]));
          store_sum(&high, finished(sums[j + 2 * k + 1]));
          pairs[k] = low | (unsigned)high << 16;
        }
        const uint4 eight = exchanged(pairs, thread);
        if (To* const to = place(first + j + thread % 4 * 2, 0, ins))
          *reinterpret_cast<uint4*>(to) = eight;
      }
      return;
    }
  }
#pragma unroll
  for (int j = 0; j < COUNT; j += 2) {
    To* const to = place(first + j, thread % 4 * 2, ins);
    if (!to) continue;
    if constexpr (PAIRED) {
      if (ins > 1 && p.dw_in == 1 && (unsigned long long)to % 8 == 0) {
        *reinterpret_cast<float2*>(to) = make_float2(finished(sums[j]), finished(sums[j + 1]));
        continue;
      }
    }
    store_sum(to, finished(sums[j]));
    if (ins > 1) store_sum(to + p.dw_in, finished(sums[j + 1]));
  }
}

// What a block has of a work tile: the result, or a share of the sum for winolab_wgrad_direct_gather.
__device__ __forceinline__ void finish(const SumParams& params, const ColumnScheduler& scheduler,
                                       const float (&acc)[WIDTH / 2]) {
  if (scheduler.whole()) return store(params, work_of(params.sum, scheduler.tile), threadIdx.x, 0, acc);
  float* const partial = params.sum.buckets + scheduler.slot(params) * (WIDTH / 2 * RESULTS) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < WIDTH / 2; ++i) partial[i * RESULTS] = acc[i];
}
