// rows.cuh with rows of x in shared memory: forward, and backward data of unit stride (ROTATED). Blocks
// stay and walk from work tile to work tile, so that rows of the next come while the last are summed.
#pragma once

#include "filters.cuh"
#include "stages.cuh"

constexpr int OPEN = (KH + SH - 1) / SH;  // rows of y that a step's SH rows of x meet

struct Walk {
  const DepthwiseStagedParams& params;
  const DepthwiseParams& p;
  const BlockFilters& filter;
  Consumer& consumer;
  const int base, row, outputs, steps;
  Out* y;                  // of the next row
  int there;               // columns that y has
  float sum[OPEN][TW][V];  // of row - i, as the step counts

  __device__ __forceinline__ Walk(const DepthwiseStagedParams& params, const BlockFilters& filter,
                                  Consumer& consumer, int c, const BlockTile& at)
      : params(params), p(params.p), filter(filter), consumer(consumer),
        base(at.segment * p.rows * SH - p.pad_height), row(at.segment * p.rows),
        outputs(min(p.rows, p.out_height - row)), steps(outputs + OPEN - 1) {
    const int slot = threadIdx.x / LANES, image = at.image + slot / STRIPS;
    const int column = (at.strip * STRIPS + slot % STRIPS) * TW;
    there = c < p.channels && image < p.batch ? min(TW, p.out_width - column) : 0;
    y = p.result + image * p.y_batch + at.depth * p.y_depth + row * p.y_row +
        (long long)column * p.y_pixel + c;
#pragma unroll
    for (int i = 0; i < OPEN; ++i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[i][t][v] = 0.0f;
  }

  // Whether all rows of x and of y are there that a step meets.
  __device__ __forceinline__ bool whole(int step) const {
    const int h = base + step * SH;
    return step >= OPEN - 1 && step < outputs && h >= 0 && h + SH - 1 < p.height;
  }

  template <bool WHOLE>
  __device__ __forceinline__ void advance(int step) {
    consumer.await(step);
#pragma unroll
    for (int q = 0; q < SH; ++q)
#pragma unroll
      for (int kd = 0; kd < KD; ++kd) {
        const int h = base + step * SH + q;
        const bool meets = WHOLE || (h >= 0 && h < p.height);
        float x[COLS][V];
        if (meets) consumer.read(step, q, kd, x);
        if (!meets) continue;
#pragma unroll
        for (int i = OPEN - 1; i >= 0; --i) {
          const int kh = q + SH * i;
          if (kh >= KH || (!WHOLE && (step < i || step - i >= outputs))) continue;
#pragma unroll
          for (int kw = 0; kw < KW; ++kw)
#pragma unroll
            for (int t = 0; t < TW; ++t)
#pragma unroll
              for (int v = 0; v < V; ++v)
                sum[i][t][v] = __fmaf_rn(x[t * SW + kw][v],
                                         filter.w[(kd * KH + kh) * KW + kw][v], sum[i][t][v]);
        }
      }
    consumer.release(step, steps);
    if (WHOLE || step >= OPEN - 1) {
#ifdef EPILOGUE
      finish_columns(p, y, p.y_pixel, sum[OPEN - 1], there);
#endif
      store_columns(y, p.y_pixel, sum[OPEN - 1], 0, there);
      y += p.y_row;
    }
#pragma unroll
    for (int i = OPEN - 1; i >= 0; --i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[i][t][v] = i ? sum[i - (i > 0)][t][v] : 0.0f;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS + 32)
    winolab_depthwise_staged_rows(const __grid_constant__ DepthwiseStagedParams params) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DepthwiseShared& shared = *reinterpret_cast<DepthwiseShared*>(memory);
  const DepthwiseParams& p = params.p;
  const int first = blockIdx.x % p.chunks * CHANNELS;
  const int begin = blockIdx.x / p.chunks, every = gridDim.x / p.chunks;
  barriers_begin(shared);
  if (threadIdx.x >= THREADS) {
    if (threadIdx.x > THREADS) return;
    Producer producer{shared};
    for (int index = begin; index < p.work_tiles; index += every) {
      const BlockTile at(p, index);
      const int row = at.segment * p.rows, outputs = min(p.rows, p.out_height - row);
      producer.bring(params, (outputs + OPEN - 1) * SH, first,
                     at.strip * STRIPS * ADVANCE - p.pad_width, row * SH - p.pad_height,
                     at.depth * p.stride_depth - p.pad_depth, at.image, 0, 0, 0);
    }
    return;
  }
  const BlockFilters filter(p, first);
  Consumer consumer(shared);
  const int c = first + threadIdx.x % LANES * V;
#pragma unroll 1
  for (int index = begin; index < p.work_tiles; index += every) {
    Walk walk(params, filter, consumer, c, BlockTile(p, index));
    int step = 0;
    for (; step < walk.steps && !walk.whole(step); ++step) walk.advance<false>(step);
    for (; walk.whole(step); ++step) walk.advance<true>(step);
    for (; step < walk.steps; ++step) walk.advance<false>(step);
  }
}
