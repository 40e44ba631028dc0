// Fused Γα(n, r) on mma.sync, for compute capability 8.x: the products of gamma_wgmma/kernel.cuh,
// with the same transformed filter U (gamma_filter.cuh).
//
// A block computes BM = 64 output channels × (ROWS × COLUMNS) tiles, a work tile. Blocks are
// persistent: copies run ahead into the next work tile.
//
// Roles: all eight warps are alike. Each multiplies one state, or its share of the tiles of one, for all
// output channels, and transforms its share of the next stage's input. Half of the warps multiply first
// and half transform first, so that the Tensor Cores are busy meanwhile.
//
// Pipeline: asynchronous copies bring raw input a stage ahead, each lane what it transforms itself;
// V has two stages and is B; U goes from global memory straight into mma's A registers. Products:
// high·low, low·high, high·high, summed over 16 channels and SHARE filter rows by the Tensor Core,
// which truncates, then added in FP32 outside it.
//
// Barriers: __syncthreads once a stage (this one is multiplied, the next is made) and twice a pass
// of the epilogue (sums are staged; they are read); a lane waits for its own copies alone.
#pragma once

#include FILTER_FILE
#include "block.cuh"
#include "tile_scheduler.cuh"
#include "tile_source.cuh"

struct GammaMmaShared {
  // Two stages: [state][part][channel / 8][row][column][channel % 8]; or the epilogue's accumulators
  // in their place: [state][tile][output]
  unsigned char v[2 * V_SIZE > OUT_SIZE ? 2 * V_SIZE : OUT_SIZE];
  Vector raw[UNITS][ALPHA][32];  // a lane's own pixels
  TileSource source[V_TILES];
};
static_assert(sizeof(GammaMmaShared) <= SHARED, "as the plan has it");

// What is copied next: it walks over work tiles, outer taps and chunks ahead of the transforms.
struct MmaFetch {
  const Steps& steps;
  int index, step, chunk;

  __device__ __forceinline__ MmaFetch(const GammaMmaParams& p, GammaMmaShared& shared, const Steps& steps)
      : steps(steps), index(blockIdx.x), step(0), chunk(0) {
    tap(p, shared);
  }

  // Where this warp's tiles are under the step's tap.
  __device__ __forceinline__ void tap(const GammaMmaParams& p, GammaMmaShared& shared) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = step / p.chunks, line = group / p.taps_width, fw = group % p.taps_width;
    const int fh = line % (p.taps_height / SHARE) * SHARE, fd = line / (p.taps_height / SHARE);
    const GammaWorkTile work(p, index);
    __syncwarp();
#pragma unroll
    for (int g = 0; g < SLOTS; ++g) {
      const int tile = (g * WARPS + warp) * 8 + lane;
      if (lane >= 8 || tile >= V_TILES) continue;
      shared.source[tile] = source_of<Column>(p, work, tile, fd, fh, fw, index < p.work_tiles);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void next(const GammaMmaParams& p, GammaMmaShared& shared) {
    ++step;
    if (++chunk < p.chunks) return;
    chunk = 0;
    if (step == steps.all) {
      step = 0;
      index += gridDim.x;
    }
    tap(p, shared);
  }

  // This lane's pixels of a unit: four channels of a tile.
  __device__ __forceinline__ void copy(const GammaMmaParams& p, GammaMmaShared& shared, int unit) const {
    const int lane = threadIdx.x % 32;
    const int channel = chunk * KC + lane / 16 * 8 + lane % 2 * 4;
    const int left = p.channels - channel;
    const TileSource at = shared.source[unit * 8 + lane / 2 % 8];
    const unsigned mask = left > 0 ? at.inside : 0;
    const Element* from = at.x + channel;
    Vector* to = &shared.raw[unit][0][lane];
    if constexpr (XVEC == 4) {
      copy_pixels<0>(to, from, mask, p.x_pixel);
    } else {
#pragma unroll
      for (int i = 0; i < ALPHA; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const bool element = (mask >> i & 1) && c < left;
          const Element* one = element ? from + i * p.x_pixel + c : p.x;
          if constexpr (WIDE)
            copy_async<4>(&to[i * 32].c[c], one, element);
          else
            to[i * 32].c[c] = element ? __ldg(one) : Element(0);
        }
    }
  }

  // A tile's pixels from I on. Outside, nothing is read.
  template <int I>
  __device__ __forceinline__ void copy_pixels(Vector* to, const Element* from, unsigned mask,
                                              int x_pixel) const {
    if constexpr (I < ALPHA) {
      copy_async_at<sizeof(Vector), I * 32 * (int)sizeof(Vector)>(to, from, mask & 1u << I);
      copy_pixels<I + 1>(to, from + x_pixel, mask, x_pixel);
    }
  }
};

// Makes the stage of V whose pixels have been copied, and starts the copies of the next one.
__device__ __forceinline__ void produce(const GammaMmaParams& p, GammaMmaShared& shared, MmaFetch& fetch,
                                        unsigned char* v, float scale) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  copy_async_wait<0>();
#pragma unroll 1
  for (int unit = warp; unit < UNITS; unit += WARPS) {
    Vector pixels[ALPHA];
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) pixels[i] = shared.raw[unit][i][lane];
    unsigned pairs[2][ALPHA][PARTS];  // of channels, so that few registers do
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      float d[2][ALPHA], state[2][ALPHA];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int i = 0; i < ALPHA; ++i)
          d[c][i] = scaled(scale, value(pixels[i].c[pair * 2 + c]));
        transform_input(d[c], state[c]);
      }
#pragma unroll
      for (int s = 0; s < ALPHA; ++s) split(state[0][s], state[1][s], pairs[pair][s]);
    }
    fetch.copy(p, shared, unit);
    unsigned char* to = v + (lane / 16 * V_TILES + unit * 8 + lane / 2 % 8) * 16 + lane % 2 * 8;
#pragma unroll
    for (int s = 0; s < ALPHA; ++s)
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        *reinterpret_cast<uint2*>(to + (s * PARTS + part) * V_PART) =
            make_uint2(pairs[0][s][part], pairs[1][s][part]);
  }
  copy_async_commit();
  fetch.next(p, shared);
}

// U in vectors: of a filter, of a stage; a warp takes 32 output channels of each row, then the
// other 32. So many of these FILTERS are in registers: all rows' of 32 channels, and at least two.
constexpr int U_FILTER = PARTS * 128, U_STAGE = ALPHA * SHARE * U_FILTER;
constexpr int FILTERS = 2 * SHARE, RING = SHARE > 2 ? SHARE : 2;

using Filter = unsigned[2][PARTS][4];

__device__ __forceinline__ void load_filter(Filter& a, const uint4* u, int i) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const uint4 v = __ldg(u + i % SHARE * U_FILTER + (i / SHARE * 2 + m) * 32 + part * 128);
      a[m][part][0] = v.x, a[m][part][1] = v.y, a[m][part][2] = v.z, a[m][part][3] = v.w;
    }
}

__device__ __forceinline__ void load_filters(Filter (&a)[RING], const uint4* u) {
#pragma unroll
  for (int i = 0; i < RING; ++i) load_filter(a[i], u, i);
}

// A warp's accumulators, 64 output channels × TILES tiles; the Tensor Core's sums of some of them:
// as many at once as registers allow.
constexpr int SIDE = TILES > 32 && (TILES % 32 || (PARTS == 2 && SHARE > 2)) ? 16 : 32;
using GammaMmaSums = float[4][TILES / 8][4];
using Partial = float[2][SIDE / 8][4];
using Inputs = unsigned[SIDE / 16][4];  // B: of two tiles of 8, both halves of k

__device__ __forceinline__ void load_inputs(Inputs& b, const unsigned char* v) {
#pragma unroll
  for (int j = 0; j < SIDE / 16; ++j) load_matrices(b[j], v + j * 16 * 16);
}

__device__ __forceinline__ void multiply(Partial& sum, const Filter& a, int part, const Inputs& b) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < SIDE / 8; ++n) {
      const unsigned pairs[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
      mma<BF16>(sum[m][n], a[m][part], pairs);
    }
}

// Where registers are few, a branch that is never taken keeps the assembler from loading far ahead
// into more than there are. On an H100 spilled ones cost a tenth, and so do branches between rows.
constexpr bool CROWDED = TILES > 32 && SHARE > 1;

// Bytes from a stage's first inputs of a warp to those of its step t.
__device__ constexpr int input_offset(int t) {
  return (t % SHARE * COLUMNS + t / SHARE % (TILES / SIDE) * SIDE) * 16;
}

// A stage's products; its first filters have been loaded. ``v``: where this lane's row of the first
// four matrices is. Products with a low part are small: SKEW filter rows ahead of high·high, they lose
// less.
__device__ __forceinline__ void consume(GammaMmaSums& acc, Filter (&a)[RING], const uint4* u,
                                        const unsigned char* v) {
  constexpr int SIDES = TILES / SIDE, COUNT = 2 * SIDES * SHARE;
  constexpr int BUFFERS = PARTS == 2 ? SKEW + 1 : 2;
  Inputs high[BUFFERS];
  [[maybe_unused]] Inputs low;  // comes ahead, and is free while high parts are needed
  load_inputs(PARTS == 2 ? low : high[0], v + (PARTS - 1) * V_PART);
#pragma unroll
  for (int t = 0; t < COUNT; t += SHARE) {
    const int half = t / SHARE / SIDES, side = t / SHARE % SIDES;
    if (CROWDED && !u) __trap();
    Partial sum = {};
#pragma unroll
    for (int f = 0; f < SHARE + SKEW; ++f) {
      const int i = half * SHARE + f - SKEW, next = t + f + 1;
      if constexpr (PARTS == 2) {
        if (f < SHARE) {
          load_inputs(high[f % BUFFERS], v + input_offset(t + f));
          multiply(sum, a[(i + SKEW) % RING], 0, low);
          if (next < COUNT) load_inputs(low, v + V_PART + input_offset(next));
          multiply(sum, a[(i + SKEW) % RING], 1, high[f % BUFFERS]);
        }
      } else {
        if (next < COUNT) load_inputs(high[next % BUFFERS], v + input_offset(next));
      }
      if (f < SKEW) continue;
      multiply(sum, a[i % RING], 0, high[(PARTS == 2 ? f - SKEW : t + f) % BUFFERS]);
      if (side == SIDES - 1 && i + RING < FILTERS) {
        if (CROWDED && f + 1 == SHARE + SKEW && !u) __trap();
        load_filter(a[i % RING], u, i + RING);
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < SIDE / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& total = acc[half * 2 + m][side * (SIDE / 8) + n][e];
          total = __fadd_rn(total, sum[m][n][e]);
        }
  }
}

// The epilogue: accumulators are staged by tile, in passes; every thread fetches all states of four
// output channels of a tile, applies AT and stores.
__device__ __forceinline__ void finish(const GammaMmaParams& p, GammaMmaShared& shared, int index,
                                       const GammaMmaSums& acc) {
  constexpr int PART = TILES / PASSES;  // tiles of a warp in a pass
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const GammaWorkTile work(p, index);
  const int first = threadIdx.x % (BM / 4) * 4;  // of the thread's outputs
  const int channel = work.block_m * BM + first;
  float* out = reinterpret_cast<float*>(shared.v);
  float* to = out + (warp / SHARERS * TILES_OUT + warp % SHARERS * PART + q * 2) * ROW_OUT + g;
  AccuracyCheck<> check(p.header, p.rows + channel);
  const float back = inverse_of(input_scale(p.header));
#pragma unroll 1
  for (int pass = 0; pass < PASSES; ++pass) {
#pragma unroll
    for (int n = 0; n < TILES / 8; ++n) {
      if (n / (PART / 8) != pass) continue;
#pragma unroll
      for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          to[(n % (PART / 8) * 8 + e % 2) * ROW_OUT + m * 16 + e / 2 * 8] = acc[m][n][e];
    }
    __syncthreads();
#pragma unroll 1
    for (int e = threadIdx.x; e < TILES_OUT * BM / 4; e += THREADS) {
      const int local = e / (BM / 4), tile = local / PART * TILES + pass * PART + local % PART;
      float state[4][ALPHA], y[4][N];
#pragma unroll
      for (int s = 0; s < ALPHA; ++s) {
        const float4 v = *reinterpret_cast<const float4*>(
            out + (s * TILES_OUT + local) * ROW_OUT + first);
        state[0][s] = v.x, state[1][s] = v.y, state[2][s] = v.z, state[3][s] = v.w;
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) transform_output(state[c], y[c]);
      const int at = work.column + tile % COLUMNS, row = work.row + tile / COLUMNS;
      const Column column(p, at);
      const bool inside = channel < p.out_channels && at < p.columns && row < p.out_height;
      const int columns = inside ? min(N, p.out_width - column.first) : 0;
      Output* y_tile = p.y + column.batch * p.y_batch + column.depth * p.y_depth + row * p.y_row +
                       (long long)column.first * p.y_pixel + channel;
      unsigned few = check.tile(y, columns, back);
#pragma unroll 1
      for (int c = 0; few && channel + c < p.out_channels; ++c, few >>= 1)
        if (few & 1)
          note_in_row(p.header, y_tile + c, columns, column.first == 0, p.y_pixel,
                      check.factors(c, back));
#ifdef EPILOGUE
      finish_tile<4, YVEC == 4>(p.epilogue, y, y_tile, p.y, p.y_pixel, columns, channel,
                                p.out_channels - channel);
#endif
#pragma unroll
      for (int o = 0; o < N; ++o) {
        const float v[4] = {y[0][o], y[1][o], y[2][o], y[3][o]};
        if (o < columns) store(y_tile + (long long)o * p.y_pixel, v, p.out_channels - channel);
      }
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_gamma_mma(const __grid_constant__ GammaMmaParams p) {
  next_launch_may_begin();
  launch_before_done();
  extern __shared__ __align__(128) unsigned char memory[];
  GammaMmaShared& shared = *reinterpret_cast<GammaMmaShared*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Steps steps(p, 1);
  MmaFetch fetch(p, shared, steps);
  for (int unit = warp; unit < UNITS; unit += WARPS) fetch.copy(p, shared, unit);
  copy_async_commit();
  fetch.next(p, shared);

  const int from = warp / SHARERS * (PARTS * V_PART) +
                   (lane / 8 % 2 * V_TILES + warp % SHARERS * TILES + lane / 16 * 8 + lane % 8) * 16;
  const bool early = warp < WARPS / 2;  // whether this warp multiplies first
  int stage = 0;
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const uint4* u = p.u + (long long)(index % p.blocks_m) * steps.all * U_STAGE +
                     (warp / SHARERS * (SHARE * U_FILTER) + lane);
    const float scale = input_scale(p.header);
    GammaMmaSums acc = {};
    Filter a[RING];
    produce(p, shared, fetch, shared.v + stage * V_SIZE, scale);
    if (early) load_filters(a, u);
    __syncthreads();
#pragma unroll 1
    for (int left = steps.all; left > 0; --left) {
#pragma unroll 1
      for (int turn = 0; turn < 2; ++turn) {
        if (early == (turn == 0)) {
          consume(acc, a, u, shared.v + stage * V_SIZE + from);
          u += U_STAGE;
        } else {
          if (left > 1) produce(p, shared, fetch, shared.v + (stage ^ 1) * V_SIZE, scale);
          // Only now: registers do not hold filters beside pixels. After a work tile's last stage these
          // are not used.
          load_filters(a, early && left == 1 ? u - U_STAGE : u);
        }
      }
      __syncthreads();
      stage ^= 1;
    }
    finish(p, shared, index, acc);
  }
}
