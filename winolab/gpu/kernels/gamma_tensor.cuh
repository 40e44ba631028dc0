// Fused Γα(n, r) on Tensor Cores: ALPHA independent products of a transformed filter U (from
// filter_tensor.cuh) and transformed input tiles V, summed over (outer tap, channel), then the
// inverse transform.
//
// A block computes BN = 64 output channels × (ROWS × COLUMNS) tiles; the SPLIT blocks of a cluster
// share a summation. One warpgroup of producers fetches input tiles (fetch_*.cuh), applies BT, splits
// into PARTS of 16 bits and writes V to shared memory; two warpgroups of consumers hold half of the
// states each: U comes to wgmma's A registers from global memory, by way of shared memory where
// U_AHEAD says so, V is B. Parts of a product: high·low, low·high, high·high, summed over 16 channels
// and SHARE filter rows by the Tensor Core, which truncates, then added in FP32 outside it. A V stage
// holds the ROWS + SHARE − 1 input rows that SHARE filter rows need; of a filter's last stage REST of
// these are multiplied. Blocks are persistent: producers run ahead into the next item, then finish the
// last one (finish_tensor.cuh) while consumers go on. Of 16-bit data the Tensor Core sums all
// products, and consumers finish where no other block shares the sum (finish_exchange.cuh).

struct Shared {
  unsigned char v[V_STAGES][V_SIZE];  // [state][part][channel / 8][row][column][channel % 8]
  Raw raw;                            // fetch_*.cuh
  uint4 u[PLACES][PARTS][U_AHEAD ? CONSUMERS : 1];  // a consumer's own filters
  Staging staging;                    // finish_*.cuh
  unsigned long long v_full[V_STAGES], v_empty[V_STAGES];
};
static_assert(sizeof(Shared) <= SHARED, "as the plan has it");

// Transforms two channels of a tile.
__device__ __forceinline__ void transform(float scale, const Pair (&pixels)[ALPHA],
                                          unsigned (&parts)[ALPHA][PARTS]) {
  float d[2][ALPHA], state[2][ALPHA];
#pragma unroll
  for (int i = 0; i < ALPHA; ++i) {
    values(pixels[i], d[0][i], d[1][i]);
    d[0][i] = scaled(scale, d[0][i]), d[1][i] = scaled(scale, d[1][i]);
  }
  transform_input(d[0], state[0]);
  transform_input(d[1], state[1]);
#pragma unroll
  for (int s = 0; s < ALPHA; ++s) split(state[0][s], state[1][s], parts[s]);
}

__device__ __forceinline__ void produce(const Params& p, Shared& shared) {
  const int thread = threadIdx.x - CONSUMERS, warp = thread / 32, lane = thread % 32;
  const float scale = input_scale(p.header);
  const Steps steps(p, SPLIT);
  Pipe<V_STAGES> pipe;
  Delivered out{};
  Fetch fetch(p, shared.raw, steps);
  // In a stage of V: of a thread's unit and, in the upper half, of its part of a halved slot.
  const auto place_of = [lane](int tile) { return (lane / 16 * V_TILES + tile) * 16 + lane % 2 * 8; };
  static_assert(V_PART <= 1 << 16, "places of 16 bits");
  const unsigned places =
      place_of(unit_tile(warp, lane)) |
      place_of(unit_tile(warp % 2, lane)) + half_pair(warp, lane) * 4 << 16;
  const int first = blockIdx.x / SPLIT, stride = gridDim.x / SPLIT;
  for (int index = first; index < p.items + stride; index += stride) {
    const int count = index < p.items ? steps.end - steps.begin : 0;
    const int ahead = min(AHEAD, count);
#pragma unroll 1
    for (int step = 0; step <= count; ++step) {
      if (step == ahead && index > first) finish(p, shared.staging, index - stride, out, scale);
      if (step == count) break;
#pragma unroll
      for (int g = 0; g < SLOTS; ++g) {
        const bool halved = HALVED && g == SLOTS - 1;
        unsigned pairs[2][ALPHA][PARTS];  // of channels, so that few registers do
        if (halved) {
          Pair pixels[ALPHA];
          fetch.pixels(g, pixels);
          transform(scale, pixels, pairs[0]);
        } else {
          Loaded pixels[ALPHA];
          fetch.pixels(g, pixels);
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            Pair two[ALPHA];
#pragma unroll
            for (int i = 0; i < ALPHA; ++i) two[i] = pair_of(pixels[i], pair);
            transform(scale, two, pairs[pair]);
          }
        }
        if (g == 0) barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
        unsigned char* v = shared.v[pipe.stage] + g * 32 * 16;
        if (halved) {
#pragma unroll
          for (int s = 0; s < ALPHA; ++s)
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
              *reinterpret_cast<unsigned*>(v + (places >> 16) + (s * PARTS + part) * V_PART) =
                  pairs[0][s][part];
        } else if (V_TILES % 32 == 0 || g * 4 + warp < V_TILES / 8) {
#pragma unroll
          for (int s = 0; s < ALPHA; ++s)
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
              *reinterpret_cast<uint2*>(v + (places & 0xffff) + (s * PARTS + part) * V_PART) =
                  make_uint2(pairs[0][s][part], pairs[1][s][part]);
        }
        fetch.done(p, g);
      }
      fence_async();
      barrier_arrive(&shared.v_full[pipe.stage]);
      pipe.advance();
      fetch.next(p);
    }
  }
}

// Filters of a stage, of a group's states, in the order of use, of TAPS of its filter rows.
template <int TAPS = SHARE>
constexpr int FILTERS = HELD * TAPS;
constexpr int LAST = REST ? REST : SHARE;  // rows of a filter's last stage
static_assert(FILTERS<> % RING == 0 && FILTERS<LAST> % RING == 0 && FILTERS<> % PLACES == 0 &&
                  FILTERS<LAST> % PLACES == 0,
              "the same places in every stage");
static_assert(REST == 0 || RING + U_AHEAD <= FILTERS<LAST>, "of this stage and the next");
static_assert(U_AHEAD == 0 || U_AHEAD > SKEW, "a place is filled again after all of its parts left it");
constexpr int U_FILTER = PARTS * 128, U_ROW = ALPHA * U_FILTER;  // vectors; of a filter row of a stage

// Whether a stage is of a filter's last rows, of which REST are there. Not counted from stage to stage:
// consumers have no registers left.
__device__ __forceinline__ bool rest(const Params& p, int step) {
  const int groups = p.taps_height / SHARE;
  return REST > 0 && step / (p.chunks * p.taps_width) % groups == groups - 1;
}

// Filter rows of U before a stage; behind the last one, all of them.
__device__ __forceinline__ int rows_before(const Params& p, int step) {
  if constexpr (REST == 0) return step * SHARE;
  const int stages = p.chunks * p.taps_width, group = step / stages, groups = p.taps_height / SHARE;
  const int rows = group % groups == groups - 1 ? REST : SHARE;
  return (group * SHARE - group / groups * (SHARE - REST)) * stages + step % stages * rows;
}

// U on its way to a consumer thread, ahead of the products over stages and items: RING filters in
// registers, U_AHEAD more in the thread's own part of shared memory, until L2 has brought them.
struct Filters {
  const Params& p;
  const Steps& steps;
  uint4* const places;    // the thread's, of every CONSUMERS-th vector
  const uint4 *u, *next;  // the thread's first vector of this stage; of the one that comes in
  int index, left;

  __device__ __forceinline__ Filters(const Params& p, const Steps& steps, Shared& shared)
      : p(p), steps(steps), places(&shared.u[0][0][U_AHEAD > 0 ? threadIdx.x : 0]),
        index(blockIdx.x / SPLIT), left(steps.end - steps.begin) {
    stage_at(steps.begin);
    u = next;
  }

  // Next is that stage of the item.
  __device__ __forceinline__ void stage_at(int step) {
    const int group = threadIdx.x / 128 * (rest(p, step) ? FILTERS<LAST> : FILTERS<>) * U_FILTER;
    next = p.u + (long long)(index % p.blocks_m) * rows_before(p, steps.all) * U_ROW +
           (rows_before(p, step) * U_ROW + group + threadIdx.x % 128);
  }

  __device__ __forceinline__ void walk() {
    if (--left == 0) {
      left = steps.end - steps.begin;
      index += gridDim.x / SPLIT;
      stage_at(steps.begin);
    } else if constexpr (REST > 0) {
      stage_at(steps.end - left);
    } else {
      next += SHARE * U_ROW;
    }
  }

  template <int TAPS>
  __device__ __forceinline__ void bring(int i) {
    if constexpr (U_AHEAD > 0) {
      if (i > 0 && i % FILTERS<TAPS> == 0) walk();
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        copy_async<16>(places + (i % PLACES * PARTS + part) * CONSUMERS,
                       next + (i % FILTERS<TAPS> * U_FILTER + part * 128), true);
      copy_async_commit();
    }
  }

  template <int TAPS>
  __device__ __forceinline__ void take(unsigned (&to)[4], int i, int part) const {
    uint4 v;
    if constexpr (U_AHEAD > 0)
      v = places[(i % PLACES * PARTS + part) * CONSUMERS];
    else
      v = __ldg((i < FILTERS<TAPS> ? u : next) + (i % FILTERS<TAPS> * U_FILTER + part * 128));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }

  __device__ __forceinline__ void fill(unsigned (&a)[RING][PARTS][4]) {
#pragma unroll
    for (int i = 0; i < RING; ++i) {
      bring<LAST>(i);
      copy_async_wait<0>();
#pragma unroll
      for (int part = 0; part < PARTS; ++part) take<LAST>(a[i][part], i, part);
    }
#pragma unroll
    for (int i = RING; i < RING + U_AHEAD; ++i) bring<SHARE>(i);
    copy_async_wait<0>();
  }

  // A stage is consumed next.
  __device__ __forceinline__ void stage() {
    if constexpr (U_AHEAD == 0) {
      u = next;
      walk();
    }
  }

  // A part of filter i of a stage is done with, its last before its first: the registers take that
  // of the filter RING later.
  template <int TAPS>
  __device__ __forceinline__ void refill(unsigned (&a)[RING][PARTS][4], int i, int part) {
    if (U_AHEAD > 0 && part == PARTS - 1) copy_async_wait<PLACES - 1 - (U_AHEAD > 0 ? SKEW : 0)>();
    take<TAPS>(a[i % RING][part], i + RING, part);
    if (part == 0) bring<TAPS>(i + RING + U_AHEAD);
  }
};

__device__ __forceinline__ void add(float (&acc)[32], const float (&part)[32]) {
#pragma unroll
  for (int j = 0; j < 32; ++j) acc[j] = __fadd_rn(acc[j], part[j]);
}

// A group's products of a stage of TAPS filter rows.
template <int TAPS>
__device__ __forceinline__ void multiply(float (&acc)[STEPS][32], unsigned (&a)[RING][PARTS][4],
                                         Filters& filters, unsigned long long v) {
  float part[32];
#pragma unroll
  for (int s = 0; s < HELD; ++s) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      // Products with a low part are small: SKEW rows ahead of high·high, they lose less.
#pragma unroll
      for (int f = 0; f < TAPS + SKEW; ++f) {
        const int i = s * TAPS + f, h = f - SKEW, offset = (f * COLUMNS + half * 64) * 16;
        // Of 16 bits the Tensor Core alone sums all products.
        float(&sum)[32] = PARTS == 1 ? acc[s * HALVES + half] : part;
        wgmma_fence();
        if (PARTS == 2 && f < TAPS) {
          wgmma<64, BF16>(sum, a[i % RING][0], descriptor_offset(v, offset + V_PART), f > 0);
          wgmma<64, BF16>(sum, a[i % RING][PARTS - 1], descriptor_offset(v, offset), true);
        }
        if (h >= 0)
          wgmma<64, BF16>(sum, a[(i - SKEW) % RING][0],
                          descriptor_offset(v, offset - SKEW * COLUMNS * 16), true);
        wgmma_commit();
        if (f > 0 || (PARTS == 1 && s + half > 0)) {
          wgmma_wait<1>();
          if (PARTS == 1 && f == 0 ? half == 0 : half == HALVES - 1) {
            if (PARTS == 2) filters.refill<TAPS>(a, i - 1, 1);
            if (PARTS == 1 || h > 0) filters.refill<TAPS>(a, i - SKEW - 1, 0);
          }
        }
      }
      if constexpr (PARTS == 2) {
        wgmma_wait<0>();
        if (half == HALVES - 1) {
          const int last = s * TAPS + TAPS - 1;
          if (SKEW == 0) filters.refill<TAPS>(a, last, 1);
          filters.refill<TAPS>(a, last, 0);
        }
        add(acc[s * HALVES + half], part);
      }
    }
    v = descriptor_offset(v, PARTS * V_PART);
  }
  if constexpr (PARTS == 1) {
    wgmma_wait<0>();
    filters.refill<TAPS>(a, FILTERS<TAPS> - 1, 0);
  }
}

__device__ __forceinline__ void consume(const Params& p, Shared& shared) {
  // The same in all lanes, as the compiler sees: descriptors are made in uniform registers.
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
  const Steps steps(p, SPLIT);
  Pipe<V_STAGES> pipe;
  Delivered out{};
  Filters filters(p, steps, shared);
  unsigned a[RING][PARTS][4];
  filters.fill(a);
  for (int index = blockIdx.x / SPLIT; index < p.items; index += gridDim.x / SPLIT) {
    float acc[STEPS][32];
#pragma unroll
    for (int j = 0; j < 32; ++j)
#pragma unroll
      for (int i = 0; i < STEPS; ++i) acc[i][j] = 0.0f;
#pragma unroll 1
    for (int left = steps.end - steps.begin; left > 0; --left) {
      barrier_wait(&shared.v_full[pipe.stage], pipe.phase);
      filters.stage();
      const unsigned long long v = matrix_descriptor(
          shared.v[pipe.stage] + group * HELD * PARTS * V_PART, V_TILES * 16, 128);
      if (rest(p, steps.end - left))
        multiply<LAST>(acc, a, filters, v);
      else
        multiply<SHARE>(acc, a, filters, v);
      if (lane == 0) barrier_arrive(&shared.v_empty[pipe.stage]);
      pipe.advance();
    }
    deliver(p, shared.staging, acc, group, index, out);
  }
}

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    winolab_gamma(const __grid_constant__ Params p) {
  next_launch_may_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < V_STAGES; ++s) {
      barrier_init(&shared.v_full[s], PRODUCERS);
      barrier_init(&shared.v_empty[s], CONSUMERS / 32);
    }
    fetch_init(shared.raw);
    staging_init(shared.staging);
    barriers_ready();
  }
  __syncthreads();
  if constexpr (SPLIT > 1) cluster_sync();
  // The loader of x itself, which no launch writes, does not wait for the launch before.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const bool loads = warp == (CONSUMERS + PRODUCERS) / 32;
  if (FILLED || !loads) launch_before_done();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else if (threadIdx.x < CONSUMERS + PRODUCERS) {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared);
  } else {
    registers_shrink<LOADER_REGISTERS>();
    if (loads)
      load(p, shared.raw);
    else
      attend(p, shared.staging);
  }
  if constexpr (SPLIT > 1) cluster_sync();  // other blocks may still read this one's sums
}
