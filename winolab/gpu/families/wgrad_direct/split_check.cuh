// Which results are suspect: both operands have absolute errors of at most 2^-25 where their low
// parts are lost, so that a sum over K positions gets sqrt(D + X) 2^-25 / sqrt(3) as RMS, D and X
// being the sums of squares of its scaled dy and x. FP32 in order gets 0.30 · 2^-24 sqrt(K) times
// the result: LEAST_INPUT (scale.py) says how large |dw| has to be for the first to be at most 1.3
// times the second. A single dw may be near 0 by chance, and where data are sparse or have long tails
// all taps of a pair of channels: sums are judged, over a block's taps, of 16 output channels for each
// input channel, and of all of the block's input channels for each output channel.
// A share of a sum by itself is held against FP32's error of its own positions: errors of shares add up
// as squares, as those of FP32 over all positions do.
#pragma once

#include "split_stage.cuh"
#include "column_sums.cuh"

// Positions of a share of a work tile that exist: a work tile's last block may have fewer.
__device__ __forceinline__ float positions_of(const SplitParams& params, const GradientWorkTile& work,
                                              const ColumnScheduler& scheduler) {
  const GradientParams& p = params.sum;
  const int columns = scheduler.last - scheduler.first, chunks = (int)params.chunks;
  const int missing =
      scheduler.stages / columns * KS - p.batch * work.depths * work.rows * chunks;
  const int last = max(0, scheduler.end - max(scheduler.begin, scheduler.stages - columns));
  const float rows = (float)(scheduler.end - scheduler.begin) * KS - (float)last * missing;
  return chunks > 1 ? rows * p.out_width / ((float)p.pitch * chunks) : rows;
}

// Results of a warp's 16 output channels, before they are scaled back, held against what their low
// parts may have lost.
__device__ __forceinline__ void check_accuracy(const SplitParams& params, const SplitShared& shared,
                                      const ColumnScheduler& scheduler,
                                          const float (&acc)[WIDTH / 2], int group_m,
                                      int tap0) {
  const GradientParams& p = params.sum;
  int* const flags = params.x_header->flags;
  const GradientWorkTile work = work_of(p, scheduler.tile);
  const int lane = threadIdx.x % 32, out = group_m * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
  const int ins = p.channels - work.in, outs = p.out_channels - work.out - out;
  const int tap = work.tap_width + tap0;
  const float positions = positions_of(params, work, scheduler);
  // A share may have no more than some columns, [first, last) of a row or all but [last, first).
  const int count = scheduler.last - scheduler.first;
  const bool all = params.chunks > 1 || scheduler.end - scheduler.begin >= count;
  const int first = all ? 0 : scheduler.first + scheduler.begin % count;
  const int last = all ? 0 : scheduler.first + scheduler.end % count;
  const auto meets = [&](int begin, int end) { return max(begin, 0) < min(end, p.out_width); };
  int taps = 0;  // that meet x: others are 0
  bool exists[GROUP_TAPS];
#pragma unroll
  for (int t = 0; t < GROUP_TAPS; ++t) {
    const int low = p.pad_width - tap * DILATION_WIDTH - t * DILATION_WIDTH;
    const auto up = Met<STRIDE_WIDTH>::up;
    const int begin = up(low), end = up(low + p.width);  // of dy's columns
    exists[t] = tap + t < p.taps_width;
    taps += exists[t] && (first < last ? meets(max(begin, first), min(end, last))
                                       : meets(begin, min(end, last)) ||
                                             meets(max(begin, first), end));
  }
  const float unit = LEAST_INPUT / 1024.0f * taps / sqrtf(fmaxf(positions, 1.0f));
  float row_sum[2] = {}, row_least[2] = {};
#pragma unroll
  for (int column = 0; column < BI / 4; ++column) {  // of the thread, two by two
    const int in = column / 2 * 8 + lane % 4 * 2 + column % 2;
    const float of_x = shared.squares[BO + in];
    float all = 0.0f, all_least = 0.0f;
#pragma unroll
    for (int down = 0; down < 2; ++down) {
      float sum = 0.0f;
#pragma unroll
      for (int t = 0; t < GROUP_TAPS; ++t) {
        const float dw = acc[t * (BI / 2) + column / 2 * 4 + down * 2 + column % 2];
        if (exists[t]) sum = __fadd_rn(sum, fabsf(dw));
      }
      const bool inside = in < ins && down * 8 < outs;
      const float square = __fadd_rn(shared.squares[out + down * 8], of_x);
      const float least = inside ? __fmul_rn(unit, sqrtf(square)) : 0.0f;
      if (!inside) sum = 0.0f;
      all = __fadd_rn(all, sum), all_least = __fadd_rn(all_least, least);
      row_sum[down] = __fadd_rn(row_sum[down], sum);
      row_least[down] = __fadd_rn(row_least[down], least);
    }
#pragma unroll
    for (int flip = 4; flip < 32; flip *= 2) {
      all = __fadd_rn(all, __shfl_xor_sync(0xffffffffu, all, flip));
      all_least = __fadd_rn(all_least, __shfl_xor_sync(0xffffffffu, all_least, flip));
    }
    judge(flags, all, all_least);
  }
#pragma unroll
  for (int down = 0; down < 2; ++down) {
#pragma unroll
    for (int flip = 1; flip < 4; flip *= 2) {
      row_sum[down] = __fadd_rn(row_sum[down], __shfl_xor_sync(0xffffffffu, row_sum[down], flip));
      row_least[down] =
          __fadd_rn(row_least[down], __shfl_xor_sync(0xffffffffu, row_least[down], flip));
    }
    judge(flags, row_sum[down], row_least[down]);
  }
}
