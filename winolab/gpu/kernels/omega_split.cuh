// dW of FP32 data by direct products on wgmma, of x and dy as they lie in memory: nothing is
// transformed, and the only workspace is two headers (scale.cuh) and the segments' sums.
//
// Positions, pitch and neighbouring taps are omega_direct.cuh's. Producers load FP32 into registers,
// AHEAD vectors before they are needed, scale them by their tensor's power of two and store FP16
// parts as wgmma reads them with the 128-byte swizzle. Consumers keep dy's parts of a stage in
// registers, so that shared memory serves x alone: 64 instead of 128 bytes a cycle. What the Tensor
// Core sums, and truncates, is low·high + high·low of a stage and then its high·high; these partial
// sums of 64 columns are added to FP32 accumulators outside.
//
// Which results are in doubt: both operands have absolute errors of at most 2^-25 where their low
// parts are lost, so that a sum over K positions gets sqrt(D + X) 2^-25 / sqrt(3) as RMS, D and X
// being the sums of squares of its scaled dy and x. FP32 in order gets 0.30 · 2^-24 sqrt(K) times
// the result: LEAST_INPUT (scale.py) says how large |dw| has to be for the first to be at most 1.3
// times the second. A single dw may be near 0 by chance: three taps' together are not; where a block
// has fewer, 16 output channels' of an input channel, and all input channels' of an output channel.
// A segment by itself is held against FP32's error of its own positions: errors of segments add up
// as squares, as those of FP32 over all positions do.

constexpr int TAPS = N, KS = KC;
constexpr int GROUPS = 2, THREADS = 128 * GROUPS + PRODUCERS;
// Warpgroups have 64 output channels each; of the same ones half of the taps, or of the positions.
constexpr int GROUPS_M = BO / 64;
constexpr int GROUPS_K = GROUPS_M * TAPS % GROUPS ? GROUPS / GROUPS_M : 1;
constexpr int GROUP_TAPS = GROUPS_M * GROUPS_K * TAPS / GROUPS, GROUP_KS = KS / GROUPS_K;
constexpr int ROWS = KS + (TAPS > 1 ? 8 : 0);  // of a stage of x
constexpr int PLANES = BI / 64;                // of 64 channels
constexpr int PIECES = PLANES * GROUP_TAPS;    // of 64 columns, of a warpgroup
constexpr int VECTORS_M = BO / 4, VECTORS_N = BI / 4;  // of a position
constexpr int DOWN_M = PRODUCERS / VECTORS_M, DOWN_N = PRODUCERS / VECTORS_N;  // positions at once
constexpr int LOADS_M = KS / DOWN_M, LOADS = LOADS_M + KS / DOWN_N;  // of a thread, of a stage
constexpr int DESCRIBED = PRODUCERS / KS;      // steps whose positions are found at once
constexpr int TABLES = 3;  // of such positions: read, read by the next step's loads, written
// Registers that the launch gives, handed from producers to consumers. With more than these the
// compiler has producers' sums of squares wait, and spills what they are of.
constexpr int PRODUCER_REGISTERS = 80, LAUNCHED = 65536 / THREADS / 8 * 8;
constexpr int CONSUMER_REGISTERS =
    (LAUNCHED * THREADS - PRODUCER_REGISTERS * PRODUCERS) / (128 * GROUPS) / 8 * 8;
static_assert(KS % (16 * GROUPS_K) == 0 && KS % DOWN_M == 0 && KS % DOWN_N == 0 &&
                  DESCRIBED >= 1 && TAPS <= 8 && (TAPS - 1) * VECTORS_N <= PRODUCERS,
              "stage shape");
static_assert(LOADS % AHEAD == 0 && SUMS <= 2, "the same registers in every stage");

struct SplitParams {
  OmegaParams sum;
  Header* x_header;  // its flags are the call's
  Header* dy_header;
};

struct __align__(16) Place {
  const float* x;  // null: zeros
  const float* dy;
};

struct Pipe {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
};

struct Shared {
  unsigned short dy[STAGES][PARTS][GROUPS_M][KS * 64];  // [plane][position][64 channels]
  unsigned short x[STAGES][PARTS][PLANES][ROWS * 64];
  Place places[TABLES * PRODUCERS];  // a ring; in the end, producers' sums of squares
  float squares[BO + BI];            // of dy's and x's channels
  unsigned long long full[STAGES], empty[STAGES], watched;
};

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
  // Vector i of the step whose positions begin at ``places``.
  const auto load = [&](const Place* places, int i) {
    return i < LOADS_M ? m.load(places[m.row + i * DOWN_M].dy)
                       : n.load(places[n.row + (i - LOADS_M) * DOWN_N].x);
  };
  const bool tail = thread < (TAPS - 1) * VECTORS_N;  // of x, that taps after the first reach
  const int steps = item.steps();
  describe(), describe();
  producers_sync<PRODUCERS>();
  const Place* places = shared.places;
  float4 ring[AHEAD], reached = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) ring[i] = load(places, i);
  Pipe pipe;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step > 0 && step % DESCRIBED == 0) {
      describe();  // of steps after this one's: the next step's loads reach into them
      producers_sync<PRODUCERS>();
    }
    const Place* next = places + KS;
    if (next == shared.places + TABLES * PRODUCERS) next = shared.places;
    if (tail) reached = n.load(next[n.row].x);
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const float4 v = ring[i % AHEAD];
      ring[i % AHEAD] = i + AHEAD < LOADS ? load(places, i + AHEAD) : load(next, i + AHEAD - LOADS);
      if (i < LOADS_M)
        m.store(shared.dy[pipe.stage][0][0], PART_M, v, i * DOWN_M);
      else
        n.store(shared.x[pipe.stage][0][0], PART_N, v, (i - LOADS_M) * DOWN_N);
    }
    if (tail) n.store(shared.x[pipe.stage][0][0], PART_N, reached, KS);
    fence_async();  // ordinary stores are not of the proxy that wgmma reads by
    barrier_arrive(&shared.full[pipe.stage]);
    places = next;
    pipe.advance();
  }
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

// The sums of both warpgroups, in the first one's registers; whether this is the first one. The
// stages are free: nobody reads or fills them any more.
__device__ __forceinline__ bool sum_up(Shared& shared, float (&acc)[PIECES][32], int group_k) {
  static_assert(sizeof shared.dy + sizeof shared.x >= sizeof(acc) * 128, "room");
  float* const box = reinterpret_cast<float*>(&shared) + threadIdx.x % 128;
  consumers_sync<128 * GROUPS>();
  if (group_k > 0) {
#pragma unroll
    for (int i = 0; i < PIECES * 32; ++i) box[i * 128] = acc[i / 32][i % 32];
  }
  consumers_sync<128 * GROUPS>();
  if (group_k > 0) return false;
#pragma unroll
  for (int i = 0; i < PIECES * 32; ++i)
    acc[i / 32][i % 32] = __fadd_rn(acc[i / 32][i % 32], box[i * 128]);
  return true;
}

// Results of a warp's 16 output channels, before they are scaled back, held against what their low
// parts may have lost. tap, out: the thread's first ones; ins, outs: channels that exist from the
// block's first and from the thread's first on.
__device__ __forceinline__ void watch(const SplitParams& params, const Shared& shared,
                                      const Item& item, const float (&acc)[PIECES][32], int tap,
                                      int out, int ins, int outs) {
  const OmegaParams& p = params.sum;
  int* const flags = params.x_header->flags;
  const int lane = threadIdx.x % 32;
  const float positions = (float)(item.end - item.begin) * p.out_width / p.pitch;
  int taps = 0;  // that meet x: others are 0
  bool exists[GROUP_TAPS];
#pragma unroll
  for (int t = 0; t < GROUP_TAPS; ++t) {
    const int shift = tap + t - p.pad_width;
    exists[t] = tap + t < p.taps_width;
    taps += exists[t] && max(0, -shift) < min(p.out_width, p.width - shift);
  }
  const float unit = LEAST_INPUT / 1024.0f * taps / sqrtf(fmaxf(positions, 1.0f));
  float row_sum[2] = {}, row_least[2] = {};
#pragma unroll
  for (int column = 0; column < PLANES * 16; ++column) {  // of the thread, two by two
    const int in = column / 2 * 8 + lane % 4 * 2 + column % 2;
    const float of_x = shared.squares[BO + in];
    float all = 0.0f, all_least = 0.0f;
#pragma unroll
    for (int down = 0; down < 2; ++down) {
      float sum = 0.0f;
#pragma unroll
      for (int t = 0; t < GROUP_TAPS; ++t) {
        const float dw = acc[column / 16 * GROUP_TAPS + t][column % 16 / 2 * 4 + down * 2 + column % 2];
        if (exists[t]) sum = __fadd_rn(sum, fabsf(dw));
      }
      const bool inside = in < ins && down * 8 < outs;
      const float square = __fadd_rn(shared.squares[out + down * 8], of_x);
      const float least = inside ? __fmul_rn(unit, sqrtf(square)) : 0.0f;
      if (!inside) sum = 0.0f;
      if (taps >= 3) judge(flags, sum, least);
      all = __fadd_rn(all, sum), all_least = __fadd_rn(all_least, least);
      row_sum[down] = __fadd_rn(row_sum[down], sum);
      row_least[down] = __fadd_rn(row_least[down], least);
    }
    if (taps >= 3) continue;
#pragma unroll
    for (int flip = 4; flip < 32; flip *= 2) {
      all = __fadd_rn(all, __shfl_xor_sync(0xffffffffu, all, flip));
      all_least = __fadd_rn(all_least, __shfl_xor_sync(0xffffffffu, all_least, flip));
    }
    judge(flags, all, all_least);
  }
  if (taps >= 3) return;
#pragma unroll
  for (int down = 0; down < 2; ++down) {
#pragma unroll
    for (int flip = 1; flip < 4; flip *= 2) {
      row_sum[down] = __fadd_rn(row_sum[down], __shfl_xor_sync(0xffffffffu, row_sum[down], flip));
      row_least[down] =
          __fadd_rn(row_least[down], __shfl_xor_sync(0xffffffffu, row_least[down], flip));
    }
    judge(flags, row_sum[down], row_least[down]);
  }
}

__device__ __forceinline__ void consume(const SplitParams& params, Shared& shared,
                                        const Item& item) {
  const OmegaParams& p = params.sum;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);  // so: the same in all lanes
  const int group_m = group % GROUPS_M, other = group / GROUPS_M;
  const int group_k = GROUPS_K > 1 ? other : 0, tap0 = GROUPS_K > 1 ? 0 : other * GROUP_TAPS;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  // Of four matrices, two along the output channels and two along the positions, a lane's row.
  const int row = lane / 16 * 8 + lane % 8, unit = (warp * 2 + lane / 8 % 2) ^ lane % 8;
  const int from = (group_k * GROUP_KS + row) * 64 + unit * 8;
  float acc[PIECES][32] = {}, sum[SUMS][32];
  const int steps = item.steps();
  Pipe pipe;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const unsigned long long b = matrix_descriptor(
        shared.x[pipe.stage][0][0] + (group_k * GROUP_KS + tap0) * 64, 1024, 1024, Swizzle::B128);
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    unsigned a[GROUP_KS / 16][PARTS][4];
#pragma unroll
    for (int k = 0; k < GROUP_KS / 16; ++k)
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        load_matrices<true>(a[k][part], shared.dy[pipe.stage][part][group_m] + from + k * 1024);
#pragma unroll
    for (int i = 0; i < PIECES + SUMS - 1; ++i) {
      if (i < PIECES) {
        const int at = (i / GROUP_TAPS * ROWS + i % GROUP_TAPS) * 128;
        wgmma_pin(sum[i % SUMS]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < GROUP_KS / 16; ++k) {
          wgmma<64, false, true>(sum[i % SUMS], a[k][1], descriptor_offset(b, at + k * 2048), k > 0);
          wgmma<64, false, true>(sum[i % SUMS], a[k][0],
                                 descriptor_offset(b, at + k * 2048 + PLANES * ROWS * 128), true);
        }
#pragma unroll
        for (int k = 0; k < GROUP_KS / 16; ++k)
          wgmma<64, false, true>(sum[i % SUMS], a[k][0], descriptor_offset(b, at + k * 2048), true);
        wgmma_commit();
      }
      const int done = i - (SUMS - 1);
      if (done < 0) continue;
      if (i < PIECES)
        wgmma_wait<SUMS - 1>();
      else
        wgmma_wait<0>();
      wgmma_pin(sum[done % SUMS]);
      if (done == PIECES - 1) {
        __syncwarp();
        if (lane == 0) barrier_arrive(&shared.empty[pipe.stage]);
      }
#pragma unroll
      for (int j = 0; j < 32; ++j) acc[done][j] = __fadd_rn(acc[done][j], sum[done % SUMS][j]);
    }
    pipe.advance();
  }
  if constexpr (GROUPS_K > 1) {
    if (!sum_up(shared, acc, group_k)) return;
  }
  const int down = group_m * 64 + warp * 16 + lane / 4;  // of the block's output channels
  const int ins = p.channels - item.in, outs = p.out_channels - item.out - down;
  const int tap = item.tap_width + tap0;
  barrier_wait(&shared.watched, 0);
  watch(params, shared, item, acc, tap, down, ins, outs);

  // The smaller factor first: the other one may overflow.
  const float back_x = inverse_of(input_scale(params.x_header));
  const float back_dy = inverse_of(input_scale(params.dy_header));
  const float first = fminf(back_x, back_dy), last = fmaxf(back_x, back_dy);
  const bool whole = p.segments == 1;
  const long long row_size = (long long)p.taps_width * p.channels;
  const long long size = p.taps_depth * p.taps_height * row_size;  // of an output channel
  const long long by_out = whole ? p.dw_out : size, by_tap = whole ? p.dw_tap : p.channels;
  const long long by_in = whole ? p.dw_in : 1;
  float* const dw = (whole ? p.dw : p.buckets) +
                    (item.group * p.out_channels + item.out + down) * by_out + tap * by_tap +
                    item.in * by_in +
                    (whole ? item.tap_depth * p.dw_depth + item.tap_height * p.dw_row
                           : item.segment * (size * p.out_channels * p.groups) +
                                 (item.tap_depth * p.taps_height + item.tap_height) * row_size);
#pragma unroll
  for (int piece = 0; piece < PIECES; ++piece)
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int t = piece % GROUP_TAPS;
      const int in = piece / GROUP_TAPS * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2, under = i / 2 % 2 * 8;
      if (under < outs && in < ins && tap + t < p.taps_width)
        dw[under * by_out + t * by_tap + in * by_in] =
            __fmul_rn(__fmul_rn(acc[piece][i], first), last);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_omega_split(const __grid_constant__ SplitParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], GROUPS * 4);
    }
    barrier_init(&shared.watched, PRODUCERS);
    barriers_ready();
  }
  __syncthreads();
  const Item item(p.sum, blockIdx.x);
  if (threadIdx.x < 128 * GROUPS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared, item);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared, item);
  }
}
