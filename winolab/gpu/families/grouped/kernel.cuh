// Grouped forward and backward data of few channels a group, in 16 bits: any filter, stride and dilation.
//
// A work tile is a patch of ROWS × COLUMNS outputs of a slice of channels. Its pixels of x lie in shared
// memory, in the other stage those of the next one; a tap is an address. A product of mma.sync has 16
// positions and two chunks of eight channels: of one tap, or of two where a bundle has eight.
//
// Barriers: all threads, once a work tile: its copies are there, the other stage is read; and before the
// first when it is known what chunks meet and, KEPT, when the filter is in shared memory.
#pragma once

#include "exchanged.cuh"
#include "filters.cuh"

typedef float GroupedSums[TILES][NT][4];

// Sums of TILES · 16 positions, which begin with ``outputs``.
__device__ __forceinline__ void multiply(const unsigned char* memory, const GroupedChunks& chunks, const GroupedFilter& filter,
                                         const int (&kept_at)[KEPT ? STEPS : 1],
                                         const unsigned char* stage, const int4* outputs,
                                         GroupedSums& sum) {
  const int lane = threadIdx.x % 32;
  const unsigned char* pixel[TILES];
#pragma unroll
  for (int i = 0; i < TILES; ++i) {
    pixel[i] = stage + outputs[i * 16 + lane % 16].z;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][n][e] = 0.0f;
  }
  constexpr int ONCE = KEPT ? STEPS : TILES == 4 ? 1 : 4;
#pragma unroll ONCE
  for (int step = 0; step < STEPS; ++step) {
    const int at = KEPT ? kept_at[step] : chunks.at[2 * step + lane / 16];
    unsigned w[NT][2];
    filter.take(step, w);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
      const unsigned char* from = pixel[i] + at;
      if (PARTIAL || (CHUNKS % 2 && step == STEPS - 1)) from = at < 0 ? memory : from;
#pragma unroll
      for (int b = 0; b < BUNDLES; ++b) {
        unsigned a[4];
        load_matrices(a, from + b * (IN * 16));
#pragma unroll
        for (int n = 0; n < OUT; ++n) mma<INPUT == 2>(sum[i][b * OUT + n], a, w[b * OUT + n]);
      }
    }
  }
}

// Stores them; ``channel``: the warp's first.
__device__ __forceinline__ void store(const GroupedParams& p, const GroupedOutputs& to,
                                      const int4* outputs, int channel, const GroupedSums& sum) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Out* const y = to.at(GroupedPlaces::get(outputs + i * 16 + r * 8 + g));
      if constexpr (OUTPUT == 0) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          const int m = channel + n * 8 + q * 2;
          if (!y || m >= p.out_channels) continue;
          float v[2] = {sum[i][n][2 * r], sum[i][n][2 * r + 1]};
#ifdef EPILOGUE
          finish_channels<2, true>(p.epilogue, v, y + m, p.y, m);
#endif
          *reinterpret_cast<float2*>(y + m) = make_float2(v[0], v[1]);
        }
      } else {
        unsigned v[4];
#pragma unroll
        for (int n = 0; n < 4; ++n)
          v[n] = n < NT ? pack<OUTPUT == 2>(sum[i][n < NT ? n : 0][2 * r], sum[i][n < NT ? n : 0][2 * r + 1])
                        : 0;
        uint4 eight = exchanged(v, lane);
        const int m = channel + q * 8;
        if (!y || q >= NT || m >= p.out_channels) continue;
#ifdef EPILOGUE
        unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
        finish_pairs(p.epilogue, pairs, y + m, p.y, m);
        eight = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
#endif
        *reinterpret_cast<uint4*>(y + m) = eight;
      }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    winolab_grouped(const __grid_constant__ GroupedParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int warp = threadIdx.x / 32, warp_column = warp % WARP_COLUMNS, warp_row = warp / WARP_COLUMNS;
  const int slice = blockIdx.x % p.slices, each = blockIdx.x / p.slices;
  const GroupedPhase phase(p, each / p.workers);
  const int bundle = slice * (WARP_COLUMNS * BUNDLES);
  const int channel = (bundle + warp_column * BUNDLES) * (OUT * 8);
  const GroupedChunks chunks(memory);
  const GroupedPlaces places(p, memory + KNOWN);
  unsigned char* const lasting = reinterpret_cast<unsigned char*>(places.outputs + p.outputs);
  unsigned char* const stages = lasting + (KEPT ? 0 : FILTER);
  for (int i = threadIdx.x; i < ZEROS / 4; i += THREADS) reinterpret_cast<int*>(memory)[i] = 0;
  chunks.fill(p, phase);
  places.fill(p);
  __syncthreads();
  int index = each % p.workers, stage = 0;
  copy_patch(p, phase, GroupedTile(p, index), places, bundle * (IN * 8), stages);
  copy_async_commit();
  GroupedFilter filter(KEPT ? stages + p.stage : lasting, warp_column);
  filter.fill(p, chunks, channel, warp_row);
  int kept_at[KEPT ? STEPS : 1];
#pragma unroll
  for (int step = 0; step < (KEPT ? STEPS : 1); ++step)
    kept_at[step] = chunks.at[2 * step + threadIdx.x % 32 / 16];
  for (; index < p.work_tiles; index += p.workers, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    const GroupedOutputs to(p, phase, GroupedTile(p, index));
    if (index + p.workers < p.work_tiles)
      copy_patch(p, phase, GroupedTile(p, index + p.workers), places, bundle * (IN * 8),
                 stages + (stage ^ 1) * p.stage);
    copy_async_commit();
    if (channel >= p.out_channels) continue;
    const unsigned char* own = stages + stage * p.stage + warp_column * (BUNDLES * IN * 16);
    for (int first = warp_row * (TILES * 16); first < p.positions; first += WARP_ROWS * TILES * 16) {
      GroupedSums sum;
      multiply(memory, chunks, filter, kept_at, own, places.outputs + first, sum);
      store(p, to, places.outputs + first, channel, sum);
    }
  }
}
