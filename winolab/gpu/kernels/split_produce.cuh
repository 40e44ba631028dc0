// Of omega_split.cuh: FP32 from global memory to FP16 parts in stages.

// What a producer knows of its four channels of one tensor.
struct Side {
  float scale;
  unsigned least;  // of the magnitudes other than 0, as bits, doubled and less 1
  float squares[4] = {};
  int offset;   // of the first channel
  bool inside;  // whether the channels exist
  int row;      // of a pass
  int to;       // where the row's parts go in shared memory
  __device__ __forceinline__ Side(const Header* header, int vectors, int channels, int plane)
      : least(0xffffffffu) {
    const int thread = threadIdx.x - 128 * GROUPS, vector = thread % vectors;
    scale = input_scale(header);
    offset = vector * 4, inside = offset < channels, row = thread / vectors;
    to = vector / 16 * plane + row * 64 + (vector % 16 / 2 ^ row % 8) * 8 + vector % 2 * 4;
  }
  __device__ __forceinline__ float4 load(const float* from) const {
    if (from && inside) return __ldg(reinterpret_cast<const float4*>(from + offset));
    return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  __device__ __forceinline__ void copy(float4* raw, const float* from) const {
    copy_async<16>(raw, from + offset, from && inside);
  }
  // Both parts of a vector, ``down`` positions below the thread's first, a multiple of a pass.
  __device__ __forceinline__ void store(unsigned short* high, int part, float4 v, int down) {
    const float raw[] = {v.x, v.y, v.z, v.w};
    float scaled[4];
    unsigned first[PARTS], last[PARTS];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      scaled[c] = __fmul_rn(scale, raw[c]);
      squares[c] = __fmaf_rn(scaled[c], scaled[c], squares[c]);
      least = min(least, (__float_as_uint(raw[c]) << 1) - 1);
    }
    split(scaled[0], scaled[1], first);
    split(scaled[2], scaled[3], last);
    unsigned short* at = high + down * 64 + (to ^ down % 8 * 8);
    *reinterpret_cast<uint2*>(at) = make_uint2(first[0], last[0]);
    *reinterpret_cast<uint2*>(at + part) = make_uint2(first[1], last[1]);
  }
  __device__ __forceinline__ void tell(float* row) const {
    *reinterpret_cast<float4*>(row + offset) =
        make_float4(squares[0], squares[1], squares[2], squares[3]);
  }
  __device__ __forceinline__ bool underflows() const {
    return least < (__float_as_uint(__fmul_rn(UNDERFLOW, inverse_of(scale))) << 1) - 1;
  }
};

__device__ __forceinline__ void produce(const SplitParams& params, Shared& shared,
                                        const Item& item) {
  const OmegaParams& p = params.sum;
  const int thread = threadIdx.x - 128 * GROUPS;
  constexpr int PART_M = GROUPS_M * KS * 64, PART_N = PLANES * ROWS * 64;
  Side m(params.dy_header, VECTORS_M, p.out_channels - item.out, KS * 64);
  Side n(params.x_header, VECTORS_N, p.channels - item.in, ROWS * 64);
  const float* x = p.x + item.group * p.channels + item.in +
                   (item.depth0 + item.tap_depth - p.pad_depth) * p.x_depth +
                   (item.row0 + item.tap_height - p.pad_height) * p.x_row +
                   (long long)(item.tap_width - p.pad_width) * p.x_pixel;
  const float* dy = p.dy + item.group * p.out_channels + item.out + item.depth0 * p.dy_depth +
                    item.row0 * p.dy_row;
  const unsigned rows = max(1, item.rows), depths = max(1, item.depths);
  int index = item.begin + thread, table = 0;
  // One in a thread, every few steps: divisions cost less than registers that walk would.
  const auto describe = [&] {
    const unsigned line = (unsigned)index / p.pitch, column = (unsigned)index % p.pitch;
    const unsigned slice = line / rows, row = line % rows;
    const int image = slice / depths, depth = slice % depths;
    Place place = {nullptr, nullptr};
    // Taps after the first meet x beyond the segment's last position.
    if (image < p.batch && index < item.end + TAPS - 1) {
      if (column + item.tap_width - p.pad_width < (unsigned)p.width)
        place.x = x + image * p.x_batch + depth * p.x_depth + row * p.x_row +
                  (long long)column * p.x_pixel;
      if (column < p.out_width && index < item.end)
        place.dy = dy + image * p.dy_batch + depth * p.dy_depth + row * p.dy_row +
                   (long long)column * p.dy_pixel;
    }
    shared.places[table * PRODUCERS + thread] = place;
    index += PRODUCERS;
    table = table == TABLES - 1 ? 0 : table + 1;
  };
  const auto after = [&](const Place* places) {
    places += KS;
    return places == shared.places + TABLES * PRODUCERS ? shared.places : places;
  };
  const bool tail = thread < (TAPS - 1) * VECTORS_N;  // of x, that taps after the first reach
  const int steps = item.steps();
  describe(), describe();
  producers_sync<PRODUCERS>();
  // Vector i of the step whose positions begin at ``places``.
  const auto load = [&](const Place* places, int i) {
    return i < LOADS_M ? m.load(places[m.row + i * DOWN_M].dy)
                       : n.load(places[n.row + (i - LOADS_M) * DOWN_N].x);
  };
  // Where a thread alone writes and reads.
  const auto bring = [&](const Place* places, int slot) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      if (i < LOADS_M)
        m.copy(&shared.raw[slot][i][thread], places[m.row + i * DOWN_M].dy);
      else
        n.copy(&shared.raw[slot][i][thread], places[n.row + (i - LOADS_M) * DOWN_N].x);
    if (tail) n.copy(&shared.reached[slot][thread], after(places)[n.row].x);
    copy_async_commit();
  };
  const Place* places = shared.places;  // of the next step to be brought
  float4 ring[LOADS], reached = make_float4(0.0f, 0.0f, 0.0f, 0.0f);  // without RAW, of the next step
  if constexpr (RAW == 0) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) ring[i] = load(places, i);
    places = after(places);
  }
  for (int slot = 0; slot < RAW; ++slot) {
    bring(places, slot);
    places = after(places);
  }
  Pipe pipe;
  int slot = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step > 0 && step % DESCRIBED == 0) {
      describe();  // of steps after this one's: copies reach into them
      producers_sync<PRODUCERS>();
    }
    if constexpr (RAW > 0)
      copy_async_wait<RAW - 1>();
    else if (tail)
      reached = n.load(places[n.row].x);
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      float4 v;
      if constexpr (RAW > 0) {
        v = shared.raw[slot][i][thread];
      } else {
        v = ring[i];
        ring[i] = load(places, i);
      }
      if (i < LOADS_M)
        m.store(shared.dy[pipe.stage][0][0], PART_M, v, i * DOWN_M);
      else
        n.store(shared.x[pipe.stage][0][0], PART_N, v, (i - LOADS_M) * DOWN_N);
    }
    if constexpr (RAW > 0) {
      if (tail) reached = shared.reached[slot][thread];
    }
    if (tail) n.store(shared.x[pipe.stage][0][0], PART_N, reached, KS);
    fence_async();  // ordinary stores are not of the proxy that wgmma reads by
    barrier_arrive(&shared.full[pipe.stage]);
    if constexpr (RAW > 0) {
      bring(places, slot);
      slot = slot == RAW - 1 ? 0 : slot + 1;
    }
    places = after(places);
    pipe.advance();
  }
  copy_async_wait<0>();
  if (m.underflows() || n.underflows()) params.x_header->flags[TINY] = 1;
  // Sums of squares, of every thread, then of channels: in an order that is always the same.
  producers_sync<PRODUCERS>();  // nobody reads places any more
  float* const of_m = reinterpret_cast<float*>(shared.places);
  float* const of_n = of_m + DOWN_M * BO;
  m.tell(of_m + m.row * BO);
  n.tell(of_n + n.row * BI);
  producers_sync<PRODUCERS>();
  for (int channel = thread; channel < BO + BI; channel += PRODUCERS) {
    const bool of_dy = channel < BO;
    const float* from = of_dy ? of_m + channel : of_n + (channel - BO);
    float sum = 0.0f;
    for (int row = 0; row < (of_dy ? DOWN_M : DOWN_N); ++row)
      sum = __fadd_rn(sum, from[row * (of_dy ? BO : BI)]);
    shared.squares[channel] = sum;
  }
  barrier_arrive(&shared.watched);
}
