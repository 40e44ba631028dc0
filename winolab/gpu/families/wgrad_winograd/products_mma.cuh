// The products of Ωα(n, r) on mma.sync, for GPUs without wgmma: asynchronous copies bring stages of
// KS positions, GROUPS times four warps multiply, each 32 × WN / 2 of its group's 64 × WN channels.
// Sums and scales of FP32 data (PARTS = 2) are those of products_wgmma.cuh. With SUMS = 16, sums of
// FP16 data are kept in FP16, as WinRS has them.
#pragma once

#include "mma_sums.cuh"
#include "pipeline.cuh"
#include "transform.cuh"
#include "scheduler.cuh"

constexpr int THREADS = 128 * GROUPS;
constexpr int COLUMNS = WN / 2;  // of a warp
constexpr int TILES = COLUMNS / 8;
static_assert(COLUMNS <= 64, "one scale a warp");
static_assert(SUMS == 32 || PARTS == 1, "split products have sums in FP32");

struct GemmShared {
  unsigned short u[STAGES][PARTS][BM / 64][BLOCK];
  unsigned short v[STAGES][PARTS][BN / 64][BLOCK];
};

// Starts the copies of the next step; past the last one, none.
__device__ __forceinline__ void bring(const GemmParams& p, GemmShared& shared, const GemmWorkTile& work,
                                      Cursor& at, int step, int stage) {
  if (step < work.end) {
    const long long u_stride = p.u_positions * 64, v_stride = p.v_positions * 64;  // of a block
    const int pieces = at.count(work) * 8;  // of 16 bytes, in 64 channels
    const unsigned short* u = p.u + at.u * 64 +
                              ((long long)work.state * p.u_blocks + work.tile_m * (BM / 64)) * u_stride;
    const unsigned short* v = p.v + at.v * 64 +
                              (((long long)work.piece * PARTS * ALPHA + work.state) * p.v_blocks +
                               work.tile_n * (BN / 64)) * v_stride;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int b = 0; b < BM / 64; ++b)
        for (int i = threadIdx.x; i < pieces; i += THREADS)
          copy_async<16>(shared.u[stage][part][b] + i * 8,
                         u + (part * ALPHA * p.u_blocks + b) * u_stride + i * 8, true);
#pragma unroll
      for (int b = 0; b < BN / 64; ++b)
        for (int i = threadIdx.x; i < pieces; i += THREADS)
          copy_async<16>(shared.v[stage][part][b] + i * 8,
                         v + (part * ALPHA * p.v_blocks + b) * v_stride + i * 8, true);
    }
    at.advance(work);
  }
  copy_async_commit();
}

// Where a lane finds its row of four 8 × 8 matrices: 16 positions from k on × 16 channels.
// CHANNELS_FIRST: the second matrix has the next channels, else the next positions.
template <bool CHANNELS_FIRST>
__device__ __forceinline__ const unsigned short* matrices(const unsigned short* block, int k,
                                                          int channel) {
  const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
  const int row = k + lane % 8 + 8 * (CHANNELS_FIRST ? high : low);
  const int unit = channel / 8 + (CHANNELS_FIRST ? low : high);
  return block + unit / 8 * BLOCK + row * 64 + ((unit % 8) ^ (row % 8)) * 8;
}

// sum += A B over 16 positions of a stage; with two parts, the small products first.
template <class T>
__device__ __forceinline__ void multiply(const GemmShared& shared, int stage, int k, int row,
                                         int column, T (&sum)[2][TILES]) {
  unsigned a[PARTS][2][4];
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_matrices<true>(a[part][i], matrices<true>(shared.u[stage][part][0], k, row + 16 * i));
#pragma unroll
  for (int j = 0; j < TILES; j += 2) {
    unsigned b[PARTS][4];
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      load_matrices<true>(b[part], matrices<false>(shared.v[stage][part][0], k, column + 8 * j));
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const unsigned high[2] = {b[0][2 * c], b[0][2 * c + 1]};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (PARTS == 2) {
          const unsigned low[2] = {b[1][2 * c], b[1][2 * c + 1]};
          add_products(sum[i][j + c], a[1][i], high);
          add_products(sum[i][j + c], a[0][i], low);
        }
        add_products(sum[i][j + c], a[0][i], high);
      }
    }
  }
}

__device__ __forceinline__ void compute(const GemmParams& p, GemmShared& shared,
                                        const GemmWorkTile& work) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int row = group % GROUPS_M * 64 + warp % 2 * 32;  // in the block
  const int column = group / GROUPS_M * WN + warp / 2 * COLUMNS;
  const int padded = p.tiles_n * BN;
  float* m = p.m + (((long long)work.segment * ALPHA + work.state) * p.taps + work.tap) *
                       ((long long)p.tiles_m * BM * padded) +
             (long long)(work.tile_m * BM + row + lane / 4) * padded + work.tile_n * BN + column +
             lane % 4 * 2;
  Sums acc[2][TILES] = {};
  if (p.accumulate) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < TILES; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          set_pair(acc[i][j], r,
                   *reinterpret_cast<const float2*>(m + (16 * i + 8 * r) * padded + 8 * j));
  }
  const long long u_blocks_k = p.u_positions / KS, v_blocks_k = p.v_positions / KS;
  const float* u_scale = p.u_scale + (work.tile_m * (BM / 64) + row / 64) * u_blocks_k;
  const float* v_scale = p.v_scale + ((long long)work.piece * p.v_blocks + work.tile_n * (BN / 64) +
                                      column / 64) * v_blocks_k;
  Cursor ahead(work, work.begin), at = ahead;
  for (int s = 0; s < STAGES - 1; ++s) bring(p, shared, work, ahead, work.begin + s, s);
  int stage = 0;
  for (int step = work.begin; step < work.end; ++step) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    bring(p, shared, work, ahead, step + STAGES - 1, stage ? stage - 1 : STAGES - 1);
    if constexpr (PARTS == 1) {
#pragma unroll
      for (int k = 0; k < KS; k += 16)
        if (k < at.count(work)) multiply(shared, stage, k, row, column, acc);
    } else {
      const float scale = __fmul_rn(fabsf(__ldg(u_scale + at.u / KS)),
                                    fabsf(__ldg(v_scale + at.v / KS)));
      float sum[2][TILES][4] = {};
#pragma unroll
      for (int k = 0; k < KS; k += 16) multiply(shared, stage, k, row, column, sum);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < TILES; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float2 to = pair_of(acc[i][j], r), more = pair_of(sum[i][j], r);
            set_pair(acc[i][j], r,
                     make_float2(__fmaf_rn(more.x, scale, to.x), __fmaf_rn(more.y, scale, to.y)));
          }
    }
    if (++stage == STAGES) stage = 0;
    at.advance(work);
  }
  copy_async_wait<0>();
  next_launch_may_begin();  // not before: its blocks would take issue slots from these
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < TILES; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        *reinterpret_cast<float2*>(m + (16 * i + 8 * r) * padded + 8 * j) = pair_of(acc[i][j], r);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    winolab_wgrad_winograd_products_mma(const __grid_constant__ GemmParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const GemmWorkTile work(p, blockIdx.x);
  launch_before_done();
  compute(p, *reinterpret_cast<GemmShared*>(memory), work);
}
