// The transformed filter (filter_tensor.cuh) of split products, and the scales and thresholds of its rows
// (scale.cuh) in the same launch. Blocks have four rows. p.sharers of them transform the same ones and,
// if there are several, one more describes these; each looks for the largest elements itself, so that
// none waits for another.

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
__device__ __forceinline__ void combine(T (&values)[FILTER_WARPS][FILTER_ROWS], T value, int row) {
  constexpr int FLIP = TURNED ? 1 : 2;  // a row's lanes differ in FLIP, 2 FLIP and 4 FLIP
#pragma unroll
  for (int flip = FLIP; flip < 8 * FLIP; flip *= 2) value = merged(value, across(value, flip));
  if ((threadIdx.x & 7 * FLIP) == 0) values[threadIdx.x / 32][row] = value;
  __syncthreads();
}
template <class T>
__device__ __forceinline__ T combined(const T (&values)[FILTER_WARPS][FILTER_ROWS], int row) {
  T value = values[0][row];
#pragma unroll 8
  for (int warp = 1; warp < blockDim.x / 32; ++warp) value = merged(value, values[warp][row]);
  return value;
}

// f of load(i) for this thread's i among those of its row, and maybe of 0: BATCH loads at once, since
// one by one each would wait for the last.
template <int BATCH, class Load, class F>
__device__ __forceinline__ void batches(int first, int count, Load load, F f) {
  const int step = blockDim.x / FILTER_ROWS;
#pragma unroll 1
  for (int i = first; i < count; i += BATCH * step) {
    decltype(load(i)) v[BATCH] = {};
#pragma unroll
    for (int k = 0; k < BATCH; ++k)
      if (i + k * step < count) v[k] = load(i + k * step);
#pragma unroll
    for (int k = 0; k < BATCH; ++k) f(v[k]);
  }
}

// f of every element of row m that is this thread's, the row's thread ``first``, and maybe of zeros.
template <class F>
__device__ __forceinline__ void over_row(const FilterParams& p, int m, int first, F f) {
  const Element* w = p.w + m * p.m_stride;
  const Element* lowest = w + p.lowest;
  const int size = m < p.out_channels ? p.row_size : 0;
  if (p.step == 1 && size % 4 == 0 && (unsigned long long)lowest % 16 == 0)
    batches<4>(
        first, size / 4, [&](int i) { return reinterpret_cast<const float4*>(lowest)[i]; },
        [&](const float4& v) { f(v.x), f(v.y), f(v.z), f(v.w); });
  else if (p.step)
    batches<8>(first, size, [&](int i) { return lowest[(long long)i * p.step]; }, f);
  else
    batches<1>(
        first, size,
        [&](int i) {
          const int c = i % p.channels, tap = i / p.channels, row = tap / p.width;
          return w[c * p.c_stride + tap % p.width * p.width_stride +
                   row % p.height * p.row_stride + row / p.height * p.depth_stride];
        },
        f);
}

extern "C" __global__ void __launch_bounds__(FILTER_MOST)
    winolab_filter(const __grid_constant__ FilterParams p) {
  next_launch_may_begin();
  __shared__ unsigned largest[FILTER_WARPS][FILTER_ROWS];
  __shared__ Loss losses[FILTER_WARPS][FILTER_ROWS];
  const int blocks = p.sharers + (p.sharers > 1), rank = blockIdx.x % blocks;
  const int four = blockIdx.x / blocks, lane = threadIdx.x % 32;
  // A warp has eight lanes of each row; four warps' words are those of FILTER_M rows.
  static_assert(FILTER_ROWS == 4 && FILTER_M == 16, "rows of a warp");
  const FilterPair pair(p, four % 4 * 32 + lane, four / 4);
  const int row = TURNED ? lane / 8 : lane / 16 * 2 + lane % 2;
  const int first = threadIdx.x / 32 * 8 + (TURNED ? lane % 8 : lane % 16 / 2);  // of its threads
  unsigned most = 0;
  over_row(p, pair.m, first, [&](float v) { most = max(most, magnitude(v)); });
  combine(largest, most, row);
  most = combined(largest, row);
  const float scale = p.known != 0.0f ? p.known : scale_of(most, SCALE_FILTER);
  Loss loss = {};
  if (rank == p.sharers) {
    over_row(p, pair.m, first, [&](float v) { loss.add(v, __fmul_rn(v, scale)); });
  } else {
    const int warps = blockDim.x / 32, step = p.sharers * warps, units = p.taps * p.chunks;
    // The last first: L2 has what was read last.
    const int own = rank * warps + threadIdx.x / 32;
    int left = own < units ? (units - 1 - own) / step + 1 : 0;
    const int last = own + max(left - 1, 0) * step, tap = last / p.chunks;
    FilterUnit unit(p, tap, last - tap * p.chunks);
#pragma unroll 1
    for (; left > 0; --left, unit.retreat(p, step)) {
      Element raw[2][R];
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
    combine(losses, loss, row);
    if (first == 0)
      p.rows[pair.m] = Row(most, scale, combined(losses, row),
                           pair.m < p.out_channels ? p.row_size : 0);
  }
  launch_before_done();  // so that who waits for this launch has waited for that one, too
}
