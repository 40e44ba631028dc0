// Forward and backward data to few output channels, up to FEW: any filter, stride, dilation and addresses.
//
// A thread has all output channels of POSITIONS positions, of V channels in LANES · V that are summed;
// the LANES of a position lie beside each other and read whole lines of x. Sums are in FP32 registers.
//
// Barriers: all threads, once, when the filter is in shared memory.
#pragma once

#include "positions.cuh"
#include "vector.cuh"

// Adds lanes' sums up. Lanes exchange halves of their positions as long as they have several, so that
// what is left to add halves too; ``mine`` is the first of those that a lane keeps, LEFT in all.
template <int LEFT, int FLIP>
__device__ __forceinline__ void add_lanes(float (&sum)[POSITIONS][FEW], int lane, int& mine) {
  if constexpr (FLIP > 0) {
    if constexpr (LEFT > 1) {
      const bool upper = lane & FLIP;
      mine += upper ? LEFT / 2 : 0;
#pragma unroll
      for (int i = 0; i < LEFT / 2; ++i)
#pragma unroll
        for (int m = 0; m < FEW; ++m) {
          const float low = sum[i][m], high = sum[i + LEFT / 2][m];
          const float got = __shfl_xor_sync(0xffffffffu, upper ? low : high, FLIP);
          sum[i][m] = __fadd_rn(upper ? high : low, got);
        }
      add_lanes<LEFT / 2, FLIP / 2>(sum, lane, mine);
    } else {
#pragma unroll
      for (int m = 0; m < FEW; ++m)
        sum[0][m] = __fadd_rn(sum[0][m], __shfl_xor_sync(0xffffffffu, sum[0][m], FLIP));
      add_lanes<1, FLIP / 2>(sum, lane, mine);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    winolab_thin_outputs(const __grid_constant__ ThinParams p) {
  extern __shared__ __align__(16) float filters[];
  constexpr int KEPT = POSITIONS > LANES ? POSITIONS / LANES : 1;  // positions that a lane stores
  constexpr int SHARING = POSITIONS > LANES ? 1 : LANES / POSITIONS;  // lanes that have the same ones
  const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
  const int chunks = (p.channels + WIDTH - 1) / WIDTH;
  fill<false>(p, filters, 0, chunks, FEW);
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const ThinTile tile(p, index);
    float sum[POSITIONS][FEW];
#pragma unroll
    for (int i = 0; i < POSITIONS; ++i)
#pragma unroll
      for (int m = 0; m < FEW; ++m) sum[i][m] = 0.0f;
    for_taps(p, tile, tile.first + slot, [&](const Element* (&pixel)[POSITIONS], int tap) {
      const float* filter = filters + tap * chunks * FEW * WIDTH;
      for (int c = lane * V; c < chunks * WIDTH; c += WIDTH, filter += FEW * WIDTH) {
        Channels x[POSITIONS];
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i)
          x[i] = read(pixel[i] + c, pixel[i] && c < p.channels, p.vectors);
#pragma unroll
        for (int m = 0; m < FEW; ++m) {
          float w[V];
          taken(filter + m * WIDTH, lane, w);
#pragma unroll
          for (int i = 0; i < POSITIONS; ++i)
#pragma unroll
            for (int v = 0; v < V; ++v) sum[i][m] = __fmaf_rn(channel(x[i], v), w[v], sum[i][m]);
        }
      }
    });
    int mine = 0;
    add_lanes<POSITIONS, LANES / 2>(sum, lane, mine);
#pragma unroll
    for (int i = 0; i < KEPT; ++i) {
      Out* y = output_at(p, tile, tile.first + (mine + i) * SLOTS + slot);
#pragma unroll
      for (int m = 0; m < FEW; ++m) {
        if (!y || m >= p.out_channels || m % SHARING != lane % SHARING) continue;
#ifdef EPILOGUE
        sum[i][m] = finish_channel(p.epilogue, sum[i][m], y + m, p.y, m);
#endif
        store_sum(y + m, sum[i][m]);
      }
    }
  }
}
