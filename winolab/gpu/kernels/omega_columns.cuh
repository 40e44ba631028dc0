// dW by direct products on wgmma, of x and dy as they lie in memory: nothing is transformed, and
// the only workspace is parts of sums that several blocks share.
//
// columns.cuh says in which order. Producers copy 16 bytes at a time, exchanged as wgmma reads them
// with the 128-byte swizzle. One instruction multiplies a column of dy by up to four times 64 columns
// of a matrix whose channels are those of neighbouring columns of x.

constexpr int GROUPS = 2, THREADS = 128 * GROUPS + PRODUCERS;
constexpr int COPIED = PRODUCERS / 8, COPIES = KS / COPIED;  // positions at once; of a thread
// Warpgroups have 64 output channels each, or half of the taps for the same ones.
constexpr int GROUPS_M = BO / 64, GROUP_TAPS = GROUPS_M * TAPS / GROUPS;
constexpr int PLANES = BI / 64;  // of 64 channels
constexpr int WIDTH = GROUP_TAPS * BI;  // of a warpgroup's sums: taps and channels
constexpr int RESULTS = 128 * GROUPS;   // threads that have sums
// Registers of the launch are handed from the producers to those that multiply.
constexpr int PRODUCER_REGISTERS = WIDTH > 320 ? 56 : 64, LAUNCHED = 65536 / THREADS / 8 * 8;
constexpr int CONSUMER_REGISTERS =
    (LAUNCHED * THREADS - PRODUCER_REGISTERS * PRODUCERS) / (128 * GROUPS) / 8 * 8;
static_assert(GROUP_TAPS * GROUPS == GROUPS_M * TAPS && KS % COPIED == 0 && COPIES <= 8 &&
                  WIDTH / 2 % RUN == 0,
              "block shape");

struct Shared {
  unsigned short dy[STAGES][GROUPS_M][KS * 64];  // [plane][position][64 channels]
  unsigned short x[SLOTS][PLANES][KS * 64];
  unsigned long long full[STAGES], empty[STAGES];
  Work consumed, produced;
  Source<Element> source;
};

__device__ __forceinline__ void produce(const ColumnParams& params, Shared& shared, Pipe& pipe) {
  const OmegaParams& p = params.sum;
  const Work& work = shared.produced;
  const Source<Element>& source = shared.source;
  const int thread = threadIdx.x - 128 * GROUPS, unit = thread % 8, row = thread / 8;
  if (thread == 0) shared.source.find(params, item_of(p, work.item));
  producers_sync<PRODUCERS>();
  const int ins = (source.ins + 7) / 8 - unit, outs = (source.outs + 7) / 8 - unit;
  const int to = row * 64 + (unit ^ row % 8) * 8;
  const int warp = thread / 32, lane = thread % 32;
  Sweep sweep(p, work);
#pragma unroll 1
  while (sweep.more()) {
    // A warp copies 4 neighbouring positions of each COPIED; a lane finds one, for all.
    Position<Element> found(params, source,
                            sweep.block * KS + warp * 4 + lane % 4 + COPIED * (lane / 4));
    found.x += (sweep.column + TAPS - 1) * (long long)p.x_pixel;
    found.dy += sweep.column * (long long)p.dy_pixel;
    found.column += sweep.column;
    const Element* from_x[COPIES];
    const Element* from_dy[COPIES];
    int column[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int finder = lane / 8 + 4 * i;
      from_x[i] = of_lane(found.x, finder) + unit * 8;
      from_dy[i] = of_lane(found.dy, finder) + unit * 8;
      column[i] = __shfl_sync(0xffffffffu, found.column, finder);
    }
    const int shift = TAPS - 1 + source.shift;
    bool same = true;
#pragma unroll 1
    while (same) {
      barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
      unsigned short* const slot = shared.x[pipe.column][0] + to;
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        const bool inside = (unsigned)(column[i] + shift) < p.width;
#pragma unroll
        for (int b = 0; b < PLANES; ++b)
          copy_async<16>(slot + (b * KS + COPIED * i) * 64, from_x[i] + b * 64,
                         inside && b * 8 < ins);
        if (TAPS > 1 && pipe.column < TAPS - 1)
#pragma unroll
          for (int b = 0; b < PLANES; ++b)
            copy_async<16>(slot + ((RING * PLANES + b) * KS + COPIED * i) * 64, from_x[i] + b * 64,
                           inside && b * 8 < ins);
        from_x[i] += p.x_pixel;
      }
      if (sweep.column >= sweep.first)
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
          const bool inside = (unsigned)column[i] < p.out_width;
#pragma unroll
          for (int b = 0; b < GROUPS_M; ++b)
            copy_async<16>(shared.dy[pipe.stage][b] + to + COPIED * 64 * i, from_dy[i] + b * 64,
                           inside && b * 8 < outs);
        }
#pragma unroll
      for (int i = 0; i < COPIES; ++i) from_dy[i] += p.dy_pixel, ++column[i];
      copy_async_arrive(&shared.full[pipe.stage]);
      pipe.advance();
      same = !sweep.advance();
    }
  }
}

// A run of a thread's sums, from the first on, to dw.
template <int COUNT>
__device__ __forceinline__ void store(const ColumnParams& params, const Item& item, int thread,
                                      int first, const float (&sums)[COUNT]) {
  const OmegaParams& p = params.sum;
  const int group_m = thread / 128 % GROUPS_M, tap0 = thread / 128 / GROUPS_M * GROUP_TAPS;
  const int out = item.out + group_m * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
  Out* const dw = p.dw + (item.group * p.out_channels + out) * p.dw_out +
                  item.tap_depth * p.dw_depth + item.tap_height * p.dw_row +
                  item.tap_width * p.dw_tap + item.in * p.dw_in;
#pragma unroll
  for (int j = 0; j < COUNT; j += 2) {
    const int i = first + j, column = i / 4 * 8 + thread % 4 * 2, down = i / 2 % 2 * 8;
    const int tap = tap0 + column / BI, in = column % BI, ins = p.channels - item.in - in;
    if (out + down >= p.out_channels || item.tap_width + tap >= p.taps_width) continue;
    Out* const to = dw + down * p.dw_out + tap * p.dw_tap + in * p.dw_in;
    if (ins > 0) store_sum(to, sums[j]);
    if (ins > 1) store_sum(to + p.dw_in, sums[j + 1]);
  }
}

// A row of sums from FIRST on, by instructions of up to 256 columns.
template <int FIRST = 0>
__device__ __forceinline__ void multiply(float (&acc)[WIDTH / 2], unsigned long long a,
                                         unsigned long long b) {
  constexpr int REST = WIDTH - FIRST, WN = REST <= 256 ? REST : 192;
  if constexpr (REST > 0) {
    wgmma<WN, BF16, true, true>(reinterpret_cast<float(&)[WN / 2]>(acc[FIRST / 2]), a,
                                descriptor_offset(b, FIRST / 64 * KS * 128), true);
    multiply<FIRST + WN>(acc, a, b);
  }
}

__device__ __forceinline__ void consume(const ColumnParams& params, Shared& shared, Pipe& pipe) {
  const Work& work = shared.consumed;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);  // so: the same in all lanes
  const int group_m = group % GROUPS_M, tap0 = group / GROUPS_M * GROUP_TAPS;
  const int lane = threadIdx.x % 32;
  float acc[WIDTH / 2] = {};
  const unsigned long long dy =
      matrix_descriptor(shared.dy[0][group_m], 1024, 1024, Swizzle::B128);
  const unsigned long long x = matrix_descriptor(shared.x[0][0], KS * 128, 1024, Swizzle::B128);
  int held = -1;  // the stage of products that are on their way
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[stage]);
  };
  Sweep sweep(params.sum, work);
#pragma unroll 1
  while (sweep.more()) {
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    if (sweep.column < sweep.first) {
      if constexpr (STAGES <= TAPS) {  // or its stage would be waited for
        wgmma_wait<0>();
        wgmma_pin(acc);
        if (held >= 0) release(held);
        held = -1;
      }
      release(pipe.stage);
    } else {
      const unsigned long long a = descriptor_offset(dy, pipe.stage * (int)sizeof shared.dy[0]);
      const unsigned long long b =
          descriptor_offset(x, (pipe.met() + tap0) * (int)sizeof shared.x[0]);
      fence_async();  // copies of 16 bytes are not of the proxy that wgmma reads by
      wgmma_pin(acc);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < KS / 16; ++k)
        multiply(acc, descriptor_offset(a, k * 2048), descriptor_offset(b, k * 2048));
      wgmma_commit();
      wgmma_wait<1>();
      if (held >= 0) release(held);
      held = pipe.stage;
    }
    pipe.advance();
    sweep.advance();
  }
  wgmma_wait<0>();
  wgmma_pin(acc);
  if (held >= 0) release(held);
  if (threadIdx.x == 0) work.tell(params);
  if (work.whole()) {
    store(params, item_of(params.sum, work.item), threadIdx.x, 0, acc);
  } else {
    float* const part =
        params.sum.buckets + work.slot(params) * (WIDTH / 2 * RESULTS) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) part[i * RESULTS] = acc[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_omega_columns(const __grid_constant__ ColumnParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], GROUPS * 4);
    }
    barriers_ready();
    shared.consumed.start(p);
    shared.produced = shared.consumed;
  }
  __syncthreads();
  Pipe pipe;
  if (threadIdx.x < 128 * GROUPS) {
    registers_grow<CONSUMER_REGISTERS>();
    for_parts(p, shared.consumed, threadIdx.x == 0, consumers_sync<128 * GROUPS>,
              [&] { consume(p, shared, pipe); });
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    for_parts(p, shared.produced, threadIdx.x == 128 * GROUPS, producers_sync<PRODUCERS>,
              [&] { produce(p, shared, pipe); });
  }
}
