// The transformed filter (filter_tensor.cuh) of split products, and the scales and thresholds of its rows
// (scale.cuh) in the same launch. Blocks have four rows, or two. p.sharers of them transform the same
// ones and, if there are several, one more describes these; each looks for the largest elements itself,
// so that none waits for another. Rows that lie dense and have room are read once, into shared memory.

struct ScaledParams {
  FilterParams filter;
  int rows;   // of a block
  int image;  // floats from a row to the next in shared memory, or 0 where it keeps none
  // A row there: the element that w is, and strides.
  int image_first, image_c, image_depth, image_row, image_width;
};

constexpr int FILTER_MOST = 896;  // threads, for whose registers a multiprocessor has room
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

// Values merged into one of each warp and row.
template <class T>
__device__ __forceinline__ void combine(T (&values)[FILTER_WARPS][FILTER_ROWS], T value, int row,
                                        int rows) {
  constexpr int FLIP = TURNED ? 1 : 2;  // a row's lanes differ in FLIP, 2 FLIP and 4 FLIP
#pragma unroll
  for (int flip = FLIP; flip < 8 * FLIP; flip *= 2) value = merged(value, across(value, flip));
  if (rows == 2) value = merged(value, across(value, 16));
  const int lane = threadIdx.x % 32;
  if ((lane & 7 * FLIP) == 0 && lane < 8 * rows) values[threadIdx.x / 32][row] = value;
  __syncthreads();
}
template <class T>
__device__ __forceinline__ T combined(const T (&values)[FILTER_WARPS][FILTER_ROWS], int row) {
  T value = values[0][row];
#pragma unroll 8
  for (int warp = 1; warp < blockDim.x / 32; ++warp) value = merged(value, values[warp][row]);
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

// Where an element of a row is in its image: vectors stay whole, and channels that lie 32 floats apart, or
// a multiple, are not all of the same bank.
__device__ __forceinline__ int imaged(int i) { return i + (i / 64 << 2); }

// f of every element of row m that is this thread's, number ``first`` of the row's ``step`` threads. They
// are copied to the row's image, if there is one.
template <class F>
__device__ __forceinline__ void over_row(const FilterParams& p, int m, int first, int step,
                                         float* image, F f) {
  const Element* w = p.w + m * p.m_stride;
  const Element* lowest = w + p.lowest;
  const int size = m < p.out_channels ? p.row_size : 0;
  if (p.step == 1 && size % 4 == 0 && (unsigned long long)lowest % 16 == 0)
    batches<4>(
        first, step, size / 4, [&](int i) { return reinterpret_cast<const float4*>(lowest)[i]; },
        [&](const float4& v, int i) {
          f(v.x), f(v.y), f(v.z), f(v.w);
          if (image) *reinterpret_cast<float4*>(image + imaged(i * 4)) = v;
        });
  else if (p.step)
    batches<8>(
        first, step, size, [&](int i) { return lowest[(long long)i * p.step]; },
        [&](float v, int i) {
          f(v);
          if (image) image[imaged(i)] = v;
        });
  else
    batches<1>(
        first, step, size,
        [&](int i) {
          const int c = i % p.channels, tap = i / p.channels, row = tap / p.width;
          return w[c * p.c_stride + tap % p.width * p.width_stride +
                   row % p.height * p.row_stride + row / p.height * p.depth_stride];
        },
        [&](float v, int) { f(v); });
}

// A pair's elements in a unit, as read_taps has them, from its row's image.
__device__ __forceinline__ void imaged_taps(const ScaledParams& params, const FilterPair& pair,
                                            const FilterUnit& unit, const float* image,
                                            float (&raw)[2][R]) {
  const FilterParams& p = params.filter;
  const int first = unit.chunk * KC + pair.channel;
  const int at = params.image_first + first * params.image_c + unit.depth * params.image_depth +
                 unit.height * params.image_row + unit.width * R * params.image_width;
  const bool inside = pair.m < p.out_channels & unit.height < p.height;
#pragma unroll
  for (int j = 0; j < R; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool is = inside & first + e < p.channels & unit.width * R + j < p.width;
      raw[e][j] = is ? image[imaged(at + e * params.image_c + j * params.image_width)] : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(FILTER_MOST)
    winolab_filter(const __grid_constant__ ScaledParams params) {
  next_launch_may_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ unsigned largest[FILTER_WARPS][FILTER_ROWS];
  __shared__ Loss losses[FILTER_WARPS][FILTER_ROWS];
  const FilterParams& p = params.filter;
  const int blocks = p.sharers + (p.sharers > 1), rank = blockIdx.x % blocks;
  // A team, a warp or half of one, has eight lanes of each of the block's rows, and a unit at a time.
  static_assert(FILTER_ROWS == 4 && FILTER_M == 16, "rows of a warp");
  const int rows = params.rows, team_size = 8 * rows, parts = FILTER_M / rows;  // parts of FILTER_M rows
  const int part = blockIdx.x / blocks, lane = threadIdx.x % 32;
  const int team = threadIdx.x / team_size, team_lane = threadIdx.x % team_size;
  const FilterPair pair(p, part % parts * team_size + team_lane, part / parts);
  const int row = TURNED ? team_lane / 8 : team_lane / 16 * 2 + lane % 2;
  const int row_threads = blockDim.x / rows, size = pair.m < p.out_channels ? p.row_size : 0;
  const int first = team * 8 + (TURNED ? lane % 8 : lane % 16 / 2);  // of the row's threads
  float* image = params.image ? reinterpret_cast<float*>(memory) + row * params.image : nullptr;
  unsigned most = 0;
  over_row(p, pair.m, first, row_threads, image, [&](float v) { most = max(most, magnitude(v)); });
  combine(largest, most, row, rows);
  most = combined(largest, row);
  const float scale = p.known != 0.0f ? p.known : scale_of(most, SCALE_FILTER);
  Loss loss = {};
  if (rank == p.sharers) {
    const auto add = [&](float v) { loss.add(v, __fmul_rn(v, scale)); };
    if (image)
      for (int i = first; i < size; i += row_threads) add(image[imaged(i)]);
    else
      over_row(p, pair.m, first, row_threads, nullptr, add);
  } else {
    const int teams = blockDim.x / team_size, step = p.sharers * teams, units = p.taps * p.chunks;
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
      if (p.sharers == 1) {
#pragma unroll
        for (int j = 0; j < 2 * R; ++j) loss.add(raw[j / R][j % R], taps[j / R][j % R]);
      }
      write_states(p, pair, unit, taps);
    }
  }
  if (rank == blocks - 1) {  // has met all elements of its rows
    combine(losses, loss, row, rows);
    if (first == 0) p.rows[pair.m] = Row(most, scale, combined(losses, row), size);
  }
  launch_before_done();  // so that who waits for this launch has waited for that one, too
}
