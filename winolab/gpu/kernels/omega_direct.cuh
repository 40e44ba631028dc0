// dW by direct products on wgmma, of x and dy as they lie in memory: nothing is transformed, and
// the only workspace is the segments' sums.
//
// The sum runs over positions (units.cuh with R = 1): a row of dy has PITCH of them, its width and
// TAPS - 1 zeros. What TAPS neighbouring taps of a filter row meet at a position of dy are then as
// many neighbouring positions of x: a stage of KS positions of dy and KS + TAPS - 1 of x serves all
// of them, and x's matrix for tap t begins t rows further on. Products with the zeros between rows
// are products nevertheless: an infinity in x may reach taps that do not meet it, as NaN.
//
// Producers copy 16 bytes at a time, exchanged as wgmma reads them with the 128-byte swizzle.

__device__ __forceinline__ void produce(const OmegaParams& p, Shared& shared, const Item& item) {
  const int thread = threadIdx.x - 128 * GROUPS, unit = thread % 8, first = thread / 8;
  const int ins = (p.channels - item.in + 7) / 8 - unit;
  const int outs = (p.out_channels - item.out + 7) / 8 - unit;
  const Element* x = p.x + item.group * p.channels + item.in +
                     (item.depth0 + item.tap_depth - p.pad_depth) * p.x_depth +
                     (item.row0 + item.tap_height - p.pad_height) * p.x_row +
                     (long long)(item.tap_width - p.pad_width) * p.x_pixel;
  const Element* dy = p.dy + item.group * p.out_channels + item.out + item.depth0 * p.dy_depth +
                      item.row0 * p.dy_row;
  Walk walk(p, item, item.begin + thread);
  int table = 0;
  // Taps after the first meet x beyond the segment's last position.
  const auto describe = [&] {
    Place place = {nullptr, nullptr};
    if (walk.image < p.batch) {
      const unsigned column = walk.column + item.tap_width - p.pad_width;
      if (column < (unsigned)p.width && walk.index < item.end + TAPS - 1) place.x = x + walk.x;
      if (walk.column < p.out_width && walk.index < item.end) place.dy = dy + walk.dy;
    }
    shared.places[table * PRODUCERS + thread] = place;
    walk.advance(p);
    table = table == TABLES - 1 ? 0 : table + 1;
  };
  const auto copy = [&](unsigned short* plane, int row, const Element* from, bool inside) {
    copy_async<16>(plane + row * 64 + (unit ^ row % 8) * 8, from + unit * 8, inside);
  };
  const auto place = [&](int step, int row) -> const Place& {
    const int at = step % (TABLES * DESCRIBED) * KS + row;
    return shared.places[at < TABLES * PRODUCERS ? at : at - TABLES * PRODUCERS];
  };
  const int steps = item.steps();
  Pipe pipe;
  describe();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step % DESCRIBED == 0) {
      describe();  // of the next steps: this one's taps reach into them
      producers_sync<PRODUCERS>();
    }
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll
    for (int i = 0; i < KS / COPIED; ++i) {
      const int row = first + COPIED * i;
      const Place from = place(step, row);
#pragma unroll
      for (int b = 0; b < GROUPS_M; ++b)
        copy(shared.dy[pipe.stage][b], row, from.dy + b * 64, from.dy && b * 8 < outs);
#pragma unroll
      for (int b = 0; b < PLANES; ++b)
        copy(shared.x[pipe.stage][b], row, from.x + b * 64, from.x && b * 8 < ins);
    }
    if (TAPS > 1 && first < TAPS - 1) {
      const Element* from = place(step, KS + first).x;
#pragma unroll
      for (int b = 0; b < PLANES; ++b)
        copy(shared.x[pipe.stage][b], KS + first, from + b * 64, from && b * 8 < ins);
    }
    copy_async_arrive(&shared.full[pipe.stage]);
    pipe.advance();
  }
}

// Two neighbouring channels of dw, or of a segment's sums.
template <class T>
__device__ __forceinline__ void store_pair(T* to, long long by_in, int ins, float first,
                                           float second) {
  if constexpr (sizeof(T) == 4) {
    if (ins > 0) to[0] = first;
    if (ins > 1) to[by_in] = second;
  } else {
    if (ins > 0) store_sum(to, first);
    if (ins > 1) store_sum(to + by_in, second);
  }
}

// The sums of both warpgroups, in the first one's registers; whether this is the first one. The
// stages are free: nobody reads or fills them any more.
__device__ __forceinline__ bool sum_up(Shared& shared, float (&acc)[PARTS][WN / 2], int group_k) {
  static_assert(GROUPS_K <= 2 && sizeof shared.dy + sizeof shared.x >= sizeof(acc) * 128, "room");
  float* const box = reinterpret_cast<float*>(&shared) + threadIdx.x % 128;
  consumers_sync<128 * GROUPS>();
  if (group_k > 0) {
#pragma unroll
    for (int i = 0; i < PARTS * WN / 2; ++i) box[i * 128] = acc[i / (WN / 2)][i % (WN / 2)];
  }
  consumers_sync<128 * GROUPS>();
  if (group_k > 0) return false;
#pragma unroll
  for (int i = 0; i < PARTS * WN / 2; ++i) {
    float& sum = acc[i / (WN / 2)][i % (WN / 2)];
    sum = __fadd_rn(sum, box[i * 128]);
  }
  return true;
}

__device__ __forceinline__ void consume(const OmegaParams& p, Shared& shared, const Item& item) {
  const int group_m = threadIdx.x / 128 % GROUPS_M, other = threadIdx.x / 128 / GROUPS_M;
  const int group_k = GROUPS_K > 1 ? other : 0, tap0 = GROUPS_K > 1 ? 0 : other * GROUP_TAPS;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float acc[PARTS][WN / 2] = {};
  const int steps = item.steps();
  Pipe pipe;
  int last = -1;
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[stage]);
  };
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const unsigned long long a =
        matrix_descriptor(shared.dy[pipe.stage][group_m] + group_k * (KS / GROUPS_K * 64), 1024,
                          1024, Swizzle::B128);
    const unsigned long long b =
        matrix_descriptor(shared.x[pipe.stage][0] + (group_k * (KS / GROUPS_K) + tap0) * 64,
                          JOINED ? 128 : ROWS * 128, 1024, Swizzle::B128);
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    fence_async();  // copies of 16 bytes are not of the proxy that wgmma reads by
#pragma unroll
    for (int part = 0; part < PARTS; ++part) wgmma_pin(acc[part]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < KS / GROUPS_K; k += 16)
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        wgmma<WN, BF16, true, true>(acc[part], descriptor_offset(a, k * 128),
                                    descriptor_offset(b, (part * PART_TAPS + k) * 128), true);
    wgmma_commit();
    wgmma_wait<1>();
    if (last >= 0) release(last);
    last = pipe.stage;
    pipe.advance();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int part = 0; part < PARTS; ++part) wgmma_pin(acc[part]);
  if constexpr (GROUPS_K > 1) {
    if (!sum_up(shared, acc, group_k)) return;
  }

  const bool whole = p.segments == 1;
  const long long row_size = (long long)p.taps_width * p.channels;
  const long long size = p.taps_depth * p.taps_height * row_size;  // of an output channel
  const long long by_out = whole ? p.dw_out : size, by_tap = whole ? p.dw_tap : p.channels;
  const long long by_in = whole ? p.dw_in : 1;
  const int out = item.out + group_m * 64 + warp * 16 + lane / 4;
  const long long at =
      (item.group * p.out_channels + out) * by_out + item.tap_width * by_tap + item.in * by_in +
      (whole ? item.tap_depth * p.dw_depth + item.tap_height * p.dw_row
             : item.segment * (size * p.out_channels * p.groups) +
                   (item.tap_depth * p.taps_height + item.tap_height) * row_size);
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
#pragma unroll
    for (int i = 0; i < WN / 2; i += 2) {
      const int column = i / 4 * 8 + lane % 4 * 2, down = i / 2 % 2 * 8;
      const int tap = tap0 + part * PART_TAPS + (JOINED ? column / 64 : 0);
      const int in = JOINED ? column % 64 : column;
      if (out + down >= p.out_channels || item.tap_width + tap >= p.taps_width) continue;
      const long long to = at + down * by_out + tap * by_tap + in * by_in;
      const int ins = p.channels - item.in - in;
      if (whole)
        store_pair(p.dw + to, by_in, ins, acc[part][i], acc[part][i + 1]);
      else
        store_pair(p.buckets + to, 1, ins, acc[part][i], acc[part][i + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_omega_direct(const __grid_constant__ OmegaParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], GROUPS * 4);
    }
    barriers_ready();
  }
  __syncthreads();
  const Item item(p, blockIdx.x);
  if (threadIdx.x < 128 * GROUPS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared, item);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared, item);
  }
}
