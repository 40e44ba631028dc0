// A product of matrices of which one has few rows, as convolutions with one tap of few positions are:
// out (rows × columns) of a, b and sums over ``depth``, by KIND:
//   0, forward:          y (positions × output channels) of x and w, whose rows are summed;
//   1, backward data:    dx (positions × channels) of dy and w, whose columns are;
//   2, backward filter:  dw (output channels × channels) of dy and x, whose columns both are.
//
// A thread has ROWS × COLUMNS results, every SLICES-th piece of their sums in FP32 registers, and loads what
// these take. The SLICES threads of a tile then add up: lanes by shuffles, warps through shared memory.
//
// Barriers: all threads, once, where several warps share a tile.
#pragma once

#include "value.cuh"
#include "vector.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

struct SkinnyParams {
  const Element* a;
  const Element* b;
  Out* out;
  long long a_pitch, b_pitch, out_pitch;  // elements from a row in memory to the next
  int rows, columns, depth;
  int across, tiles;         // tiles side by side, and all of them
  int vectors, out_vectors;  // whether V elements are read, and written, at once
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr bool DOTS = KIND == 0;
constexpr int SLICES = LANES * SHARES;      // threads of a tile
constexpr int BESIDE = 32 / LANES;          // tiles of a warp
constexpr int APART = DOTS ? 1 : BESIDE;    // lanes from one of a tile to the next: neighbours read neighbours
constexpr int STEP = DOTS ? V : 1;          // numbers of a sum that a thread takes at once
constexpr int AT_ONCE = DOTS ? 2 : 4;       // steps whose loads are on their way together
constexpr int VALUES = ROWS * COLUMNS;      // of a thread: a power of two
constexpr int KEPT = VALUES > LANES ? VALUES / LANES : 1;  // that a lane has when lanes have added up
constexpr int SHARING = KEPT * LANES / VALUES;             // lanes that have the same ones
constexpr int GROUPS = THREADS / 32 / SHARES;              // warps, or several that share, of a block

// Adds lanes' sums up; ``mine`` becomes the first of the values that a lane keeps. Lanes exchange halves as
// long as they have several.
template <int LEFT, int FLIP>
__device__ __forceinline__ void add_lanes(float (&sum)[VALUES], int slice, int& mine) {
  if constexpr (FLIP > 0) {
    if constexpr (LEFT > 1) {
      const bool upper = slice & FLIP;
      mine += upper ? LEFT / 2 : 0;
#pragma unroll
      for (int i = 0; i < LEFT / 2; ++i) {
        const float low = sum[i], high = sum[i + LEFT / 2];
        const float got = __shfl_xor_sync(0xffffffffu, upper ? low : high, FLIP * APART);
        sum[i] = __fadd_rn(upper ? high : low, got);
      }
      add_lanes<LEFT / 2, FLIP / 2>(sum, slice, mine);
    } else {
      sum[0] = __fadd_rn(sum[0], __shfl_xor_sync(0xffffffffu, sum[0], FLIP * APART));
      add_lanes<1, FLIP / 2>(sum, slice, mine);
    }
  }
}

// A step of rows that are summed: V numbers of each of the thread's rows of x and of w.
template <bool VECTORS>
struct Dots {
  Channels a[ROWS], b[COLUMNS];
  __device__ __forceinline__ void load(const SkinnyParams& p, int row, int column, int at, bool there) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
      a[i] = read(p.a + (row + i) * p.a_pitch + at, there && row + i < p.rows, VECTORS);
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
      b[j] = read(p.b + (column + j) * p.b_pitch + at, there && column + j < p.columns, VECTORS);
  }
  __device__ __forceinline__ void add(float (&sum)[VALUES]) const {
#pragma unroll
    for (int v = 0; v < V; ++v)
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
          sum[i * COLUMNS + j] = __fmaf_rn(channel(a[i], v), channel(b[j], v), sum[i * COLUMNS + j]);
  }
};

// A step of columns that are summed: a number of each of the thread's rows of the result, from a row of dy
// or from a column, and a vector of b's columns.
template <bool VECTORS>
struct Columns {
  static constexpr bool TURNED = KIND == 2;
  static constexpr bool WHOLE = TURNED && VECTORS && ROWS == V && V > 1;  // rows' numbers are a vector, too
  Channels whole, b;
  float a[ROWS];
  __device__ __forceinline__ void load(const SkinnyParams& p, int row, int column, int at, bool there) {
    b = read(p.b + at * p.b_pitch + column, there, VECTORS);
    if constexpr (WHOLE) {
      whole = read(p.a + at * p.a_pitch + row, there, true);
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const Element* from = TURNED ? p.a + at * p.a_pitch + row + i : p.a + (row + i) * p.a_pitch + at;
        a[i] = there && row + i < p.rows ? value(from) : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void add(float (&sum)[VALUES]) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        const float factor = WHOLE ? channel(whole, i) : a[i];
        sum[i * COLUMNS + j] = __fmaf_rn(factor, channel(b, j), sum[i * COLUMNS + j]);
      }
  }
};

template <bool VECTORS>
__device__ __forceinline__ void add_steps(const SkinnyParams& p, int row, int column, int first, int depth,
                                          float (&sum)[VALUES]) {
  using Step = typename Either<DOTS, Dots<VECTORS>, Columns<VECTORS>>::type;
  for (int at = first * STEP; at < depth; at += AT_ONCE * SLICES * STEP) {
    Step of[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      const int here = at + k * SLICES * STEP;
      of[k].load(p, row, column, here, here < depth);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) of[k].add(sum);
  }
}

// V neighbouring results of a row.
__device__ __forceinline__ void store_vector(Out* to, const float* sum) {
  if constexpr (OUTPUT == 0) {
#pragma unroll
    for (int v = 0; v + 3 < V; v += 4)
      *reinterpret_cast<float4*>(to + v) = make_float4(sum[v], sum[v + 1], sum[v + 2], sum[v + 3]);
  } else if constexpr (V == 8) {
    *reinterpret_cast<uint4*>(to) = make_uint4(
        pack<OUTPUT == 2>(sum[0], sum[1]), pack<OUTPUT == 2>(sum[2], sum[3]),
        pack<OUTPUT == 2>(sum[4], sum[5]), pack<OUTPUT == 2>(sum[6], sum[7]));
  }
}

__device__ __forceinline__ void store(const SkinnyParams& p, int row, int column, int mine,
                                      float (&sum)[VALUES]) {
  constexpr int TOGETHER = !DOTS && KEPT % V == 0 ? V : 1;
#pragma unroll
  for (int i = 0; i < KEPT; i += TOGETHER) {
    const int r = row + (mine + i) / COLUMNS, c = column + (mine + i) % COLUMNS;
    if (r >= p.rows || c >= p.columns) continue;
    Out* to = p.out + r * p.out_pitch + c;
    if (TOGETHER > 1 && p.out_vectors) {
      store_vector(to, sum + i);
    } else {
#pragma unroll
      for (int v = 0; v < TOGETHER; ++v) {
#ifdef EPILOGUE
        sum[i + v] = finish_channel(p.epilogue, sum[i + v], to + v, p.out, c + v);
#endif
        store_sum(to + v, sum[i + v]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_skinny(const __grid_constant__ SkinnyParams p) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = warp % SHARES, group = warp / SHARES;
  const int slice = DOTS ? lane % LANES : lane / BESIDE;
  const int beside = DOTS ? lane / LANES : lane % BESIDE;
  const int tile = (blockIdx.x * GROUPS + group) * BESIDE + beside;
  const int row = tile / p.across * ROWS, column = tile % p.across * COLUMNS;
  const int depth = tile < p.tiles ? p.depth : 0;
  float sum[VALUES];
#pragma unroll
  for (int i = 0; i < VALUES; ++i) sum[i] = 0.0f;
  if (p.vectors)
    add_steps<true>(p, row, column, share * LANES + slice, depth, sum);
  else
    add_steps<false>(p, row, column, share * LANES + slice, depth, sum);
  int mine = 0;
  add_lanes<VALUES, LANES / 2>(sum, slice, mine);
  if constexpr (SHARES > 1) {
    __shared__ float parts[SHARES > 1 ? SHARES - 1 : 1][GROUPS * 32][KEPT];
    if (share > 0) {
#pragma unroll
      for (int i = 0; i < KEPT; ++i) parts[share - 1][group * 32 + lane][i] = sum[i];
    }
    __syncthreads();
    if (share > 0) return;
#pragma unroll
    for (int s = 0; s < SHARES - 1; ++s)
#pragma unroll
      for (int i = 0; i < KEPT; ++i) sum[i] = __fadd_rn(sum[i], parts[s][group * 32 + lane][i]);
  }
  if (depth > 0 && slice % SHARING == 0) store(p, row, column, mine, sum);
}
