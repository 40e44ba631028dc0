// The transformed filter (gamma_filter.cuh) of split products, and the scales and thresholds of
// its rows (scale.cuh) in the same launch. Blocks have four rows, or two. params.sharers of them
// transform the same ones and, if there are several, one more describes these; each looks for the
// largest elements itself, so that none waits for another. Rows that lie dense and have room are
// read once, into shared memory. Of rows that have no room, two blocks, a cluster, have eight
// together and look at half of them each (gamma_filter_cluster.cuh).
#pragma once

#include "accuracy_check.cuh"
#include "gamma_filter.cuh"

struct ScaledParams {
  GammaFilterParams filter;
  long long lowest;    // of a row's elements in memory, from the one that w is
  int row_size, step;  // elements of a row of w; from one to the next in memory, or 0 where it differs
  float known;         // the scale of all rows, where the caller knows it, or 0
  int sharers;         // blocks that transform the same rows
  int rows;            // of a block
  int image;           // floats from a row to the next in shared memory, or 0 where it keeps none
  // A row there: the element that w is, and strides.
  int image_first, image_c, image_depth, image_row, image_width;
};

constexpr int FILTER_WARPS = FILTER_MOST / 32;

__device__ __forceinline__ unsigned merged(unsigned a, unsigned b) { return max(a, b); }
__device__ __forceinline__ Loss merged(const Loss& a, const Loss& b) {
  return {__fadd_rn(a.square, b.square), __fadd_rn(a.lost, b.lost), a.gone | b.gone};
}
__device__ __forceinline__ unsigned across(unsigned v, int flip) {
  return __shfl_xor_sync(0xffffffffu, v, flip);
}
__device__ __forceinline__ Loss across(const Loss& v, int flip) {
  return {__shfl_xor_sync(0xffffffffu, v.square, flip), __shfl_xor_sync(0xffffffffu, v.lost, flip),
          across(v.gone, flip)};
}

// Values merged into one of each warp and row; of a team of WARPS each has its own rows.
template <int WARPS, class T>
__device__ __forceinline__ void combine(T (&values)[FILTER_WARPS][FILTER_ROWS], T value,
                                        unsigned row, int rows) {
  constexpr int FLIP = V_AS_A ? 1 : 2;  // a row's lanes differ in FLIP, 2 FLIP and 4 FLIP
#pragma unroll
  for (int flip = FLIP; flip < 8 * FLIP; flip *= 2) value = merged(value, across(value, flip));
  if (WARPS == 1 && rows == 2) value = merged(value, across(value, 16));
  const int lane = threadIdx.x % 32;
  if ((lane & 7 * FLIP) == 0 && (WARPS > 1 || lane < 8 * rows))
    values[threadIdx.x / 32][WARPS > 1 ? row % FILTER_ROWS : row] = value;
  __syncthreads();
}
template <int WARPS, class T>
__device__ __forceinline__ T combined(const T (&values)[FILTER_WARPS][FILTER_ROWS], unsigned row) {
  const int first = threadIdx.x / 32 % WARPS, place = WARPS > 1 ? row % FILTER_ROWS : row;
  T value = values[first][place];
#pragma unroll 8
  for (int warp = first + WARPS; warp < blockDim.x / 32; warp += WARPS)
    value = merged(value, values[warp][place]);
  return value;
}

// A row's values of the cluster's blocks merged, in their order; ``own``: where each leaves its own, by
// one of the row's threads.
template <class T>
__device__ __forceinline__ T of_cluster(T (&own)[FILTER_M], T value, int row, bool leaves) {
  if (leaves) own[row] = value;
  cluster_sync();
  value = *cluster_pointer(&own[row], 0);
#pragma unroll
  for (int rank = 1; rank < FILTER_CLUSTER; ++rank)
    value = merged(value, *cluster_pointer(&own[row], rank));
  return value;
}

// f of load(i) and i, for every step-th i from the first on: BATCH loads at once, since one by one each
// would wait for the last.
template <int BATCH, class Load, class F>
__device__ __forceinline__ void batches(int first, int step, int count, Load load, F f) {
#pragma unroll 1
  for (int i = first; i < count; i += BATCH * step) {
    decltype(load(i)) v[BATCH] = {};
#pragma unroll
    for (int k = 0; k < BATCH; ++k)
      if (i + k * step < count) v[k] = load(i + k * step);
#pragma unroll
    for (int k = 0; k < BATCH; ++k)
      if (i + k * step < count) f(v[k], i + k * step);
  }
}

// Where an element of a row is in its image: vectors stay whole, and channels that lie 32 floats
// apart, or a multiple, are not all of the same bank.
__device__ __forceinline__ int imaged(int i) { return i + (i / 64 << 2); }

// f of every element of a row that is this thread's, number ``first`` of the row's ``threads``;
// ``size``: of them all. They are copied to the row's image, if there is one.
template <class F>
__device__ __forceinline__ void over_row(const ScaledParams& params, const float* row, int size,
                                         int first, int threads, float* image, F f) {
  const GammaFilterParams& p = params.filter;
  const float* lowest = row + params.lowest;
  if (params.step == 1 && size % 4 == 0 && (unsigned long long)lowest % 16 == 0)
    batches<4>(
        first, threads, size / 4, [&](int i) { return reinterpret_cast<const float4*>(lowest)[i]; },
        [&](const float4& v, int i) {
          f(v.x), f(v.y), f(v.z), f(v.w);
          if (image) *reinterpret_cast<float4*>(image + imaged(i * 4)) = v;
        });
  else if (params.step)
    batches<8>(
        first, threads, size, [&](int i) { return lowest[(long long)i * params.step]; },
        [&](float v, int i) {
          f(v);
          if (image) image[imaged(i)] = v;
        });
  else
    batches<1>(
        first, threads, size,
        [&](int i) {
          const int c = i % p.channels, tap = i / p.channels, outer = tap / p.width;
          return row[c * p.c_stride + tap % p.width * p.width_stride +
                     outer % p.height * p.row_stride + outer / p.height * p.depth_stride];
        },
        [&](float v, int) { f(v); });
}

// A pair's elements in a unit, from its row's image.
__device__ __forceinline__ void imaged_taps(const ScaledParams& params, const FilterPair& pair,
                                            const FilterUnit& unit, const float* image,
                                            float (&raw)[2][R]) {
  const Strides<int> stride = {params.image_c, params.image_depth, params.image_row,
                               params.image_width};
  const int first = params.image_first + pair.channel * stride.c;
  const auto load = [image](int i) { return image[imaged(i)]; };
  read_taps(params.filter, pair, unit, first, stride, load, raw);
}

template <bool CLUSTERED>
__device__ __forceinline__ void filter_rows(const ScaledParams& params) {
  next_launch_may_begin();
  extern __shared__ __align__(1024) float images[];
  __shared__ unsigned largest[FILTER_WARPS][FILTER_ROWS];
  __shared__ unsigned own_largest[FILTER_M];
  __shared__ Loss losses[FILTER_WARPS][FILTER_ROWS];
  __shared__ Loss own_losses[FILTER_M];
  const GammaFilterParams& p = params.filter;
  const int blocks = params.sharers + (!CLUSTERED && params.sharers > 1), rank = blockIdx.x % blocks;
  // A team, half a warp to two, has eight lanes of each of the block's rows, and a unit at a time.
  static_assert(FILTER_ROWS == 4 && FILTER_M == 16 && FILTER_CLUSTER == 2, "rows of a warp");
  constexpr int WARPS = CLUSTERED ? FILTER_CLUSTER : 1;
  const int rows = CLUSTERED ? WARPS * FILTER_ROWS : params.rows, team_size = 8 * rows;
  const int slice = blockIdx.x / blocks, slices = FILTER_M / rows, lane = threadIdx.x % 32;
  const int team = threadIdx.x / team_size, team_lane = threadIdx.x % team_size;
  // V_AS_A, a warp's four rows and those 64 places behind are eight neighbours: 32 bytes of backward
  // data's w, of which four would read half.
  const int place = CLUSTERED ? slice % 2 * 32 + team_lane % 32 + team_lane / 32 * 64
                              : slice % slices * team_size + team_lane;
  const FilterPair pair(p, place, slice / slices);
  const int row = V_AS_A ? team_lane / 8 : team_lane / 16 * 2 + lane % 2;
  const int row_threads = blockDim.x / rows, size = pair.m < p.out_channels ? params.row_size : 0;
  const int first = team * 8 + (V_AS_A ? lane % 8 : lane % 16 / 2);  // of the row's threads
  float* image = !CLUSTERED && params.image ? images + row * params.image : nullptr;
  const float* w = p.w + pair.m * p.m_stride;
  unsigned most = 0;
  over_row(params, w, size, CLUSTERED ? rank * row_threads + first : first,
           CLUSTERED ? FILTER_CLUSTER * row_threads : row_threads, image,
           [&](float v) { most = max(most, magnitude(v)); });
  combine<WARPS>(largest, most, row, rows);
  most = combined<WARPS>(largest, row);
  if constexpr (CLUSTERED) most = of_cluster(own_largest, most, row, first == 0);
  const float scale = params.known != 0.0f ? params.known : scale_of(most, SCALE_FILTER);
  Loss loss = {};
  if (rank == params.sharers) {
    const auto add = [&](float v) { loss.add(v, __fmul_rn(v, scale)); };
    if (image)
      for (int i = first; i < size; i += row_threads) add(image[imaged(i)]);
    else
      over_row(params, w, size, first, row_threads, nullptr, add);
  } else {
    const int teams = blockDim.x / team_size, step = params.sharers * teams, units = p.taps * p.chunks;
    // The last first: L2 has what was read last.
    const int own = rank * teams + team;
    int left = own < units ? (units - 1 - own) / step + 1 : 0;
    const int last = own + max(left - 1, 0) * step, tap = last / p.chunks;
    FilterUnit unit(p, tap, last - tap * p.chunks);
#pragma unroll 1
    for (; left > 0; --left, unit.retreat(p, step)) {
      Element raw[2][R];
      if (image)
        imaged_taps(params, pair, unit, image, raw);
      else
        read_taps(p, pair, unit, raw);
      float taps[2][R];
      scale_taps(scale, raw, taps);
      if (CLUSTERED || params.sharers == 1) {
#pragma unroll
        for (int j = 0; j < 2 * R; ++j) loss.add(raw[j / R][j % R], taps[j / R][j % R]);
      }
      write_states(p, pair, unit, taps);
    }
  }
  const bool met_all = rank == blocks - 1;  // elements of its rows
  if (CLUSTERED || met_all) {
    combine<WARPS>(losses, loss, row, rows);
    loss = combined<WARPS>(losses, row);
    if constexpr (CLUSTERED) loss = of_cluster(own_losses, loss, row, first == 0);
    if (met_all && first == 0) p.rows[pair.m] = Row(most, scale, loss, size);
    if constexpr (CLUSTERED) cluster_sync();  // the others' losses have been read
  }
  launch_before_done();  // so that who waits for this launch has waited for that one, too
}

extern "C" __global__ void __launch_bounds__(FILTER_MOST)
    winolab_gamma_filter_scaled(const __grid_constant__ ScaledParams params) {
  filter_rows<false>(params);
}
