// Fused Γα(n, r) on wgmma: y = AT Σ (U ⊙ BT x) over outer taps and channels, U from gamma_filter.cuh.
//
// A block computes BM output channels (64; 48 of ten states) × (ROWS × COLUMNS) tiles, a work tile.
// Blocks are persistent: producers run ahead into the next work tile.
//
// Roles, by warpgroup:
//   two of consumers   hold half of the states each and multiply. U is wgmma's A and V its B
//                      (filters_registers.cuh), or the other way round (filters_shared.cuh)
//   one of producers   fetches input tiles (fetch_*.cuh), applies BT, splits into PARTS of 16 bits and
//                      writes V; where blocks share a sum it also finishes (finish_tensor.cuh)
//   one of loaders     (RUN > 0) a warp orders boxes of x, two order filters (U_RING); warps that order
//                      nothing describe the next work tile for finish_exchange.cuh
//
// Products: low·high, high·low, high·high, summed over 16 channels and SHARE filter rows by the
// Tensor Core, which truncates, then added in FP32 outside it; in 16 bits the Tensor Core sums them
// all. A V stage holds the ROWS + SHARE − 1 input rows that SHARE filter rows need; of a filter's
// last stage only REST are multiplied.
//
// Barriers: who arrives → who waits
//   raw.full[slot]      the box loader, with the boxes' bytes → producers
//   raw.empty[slot]     every producer, once the slot's pixels are read → the box loader
//   v_full[stage]       every producer → consumers
//   v_empty[stage]      a lane of each consumer warp, or (V as A) every consumer → producers
//   filters.full/empty  a group's filter loader, with a state's bytes → its consumers, and back
//   staging.*           finish_exchange.cuh, finish_tensor.cuh
//   cluster             all threads once a pass, where blocks share a sum (SPLIT_K)
#pragma once

#include FILTER_FILE
#include FILTERS_FILE
#include FINISH_FILE
#include FETCH_FILE

struct GammaWgmmaShared {
  Raw raw;  // fetch_*.cuh; first, for its alignment
  // [state][part][channel / 8][row][column][channel % 8]
  alignas(128) unsigned char v[V_STAGES][V_SIZE];
  FilterRing filters;  // filters_*.cuh
  Staging staging;     // finish_*.cuh
  unsigned long long v_full[V_STAGES], v_empty[V_STAGES];
};
static_assert(sizeof(GammaWgmmaShared) <= SHARED, "as the plan has it");

// The scales of a producer thread's tiles: x's or, where images may have others, their own. A thread's
// tiles of a slot have the same column in every slot, but of blocks wider than a slot; those of a halved
// slot are others.
struct TileScales {
  static constexpr int COUNT = 32 % COLUMNS == 0 ? 1 : COLUMNS % 32 == 0 ? COLUMNS / 32 : SLOTS;
  bool one;  // for all images
  float own[COUNT], halved;

  __device__ __forceinline__ TileScales(const GammaWgmmaParams& p) {
    halved = input_scale(p.header);
    one = !BY_IMAGE || one_scale(p.header, halved, p.batch);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) own[i] = halved;
  }
  static __device__ __forceinline__ float of(const GammaWgmmaParams& p, float x, int index, int tile) {
    const int image = TilePlace(p, work_at(p, index).column + tile % COLUMNS).batch;
    return image_scale(p.header, x, min(image, p.batch - 1));
  }
  // Those of another work tile.
  __device__ __forceinline__ void at(const GammaWgmmaParams& p, int index, int warp, int lane) {
    if (one) return;
    const float x = input_scale(p.header);  // anew: registers are few
#pragma unroll
    for (int i = 0; i < COUNT; ++i) own[i] = of(p, x, index, i * 32 + unit_tile(warp, lane));
    if constexpr (HALVED) halved = of(p, x, index, (SLOTS - 1) * 32 + unit_tile(warp % 2, lane));
  }
};

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

__device__ __forceinline__ void produce(const GammaWgmmaParams& p, GammaWgmmaShared& shared) {
  const int thread = threadIdx.x - CONSUMERS, warp = thread / 32, lane = thread % 32;
  TileScales scales(p);
  const Steps steps(p, SPLIT_K);
  Pipe<V_STAGES> pipe;
  Delivered out{};
  Fetch fetch(p, shared.raw, steps);
  // In a stage of V: of a thread's unit and, in the upper half, of its share of a halved slot.
  const auto place_of = [lane](int tile) { return (lane / 16 * V_TILES + tile) * 16 + lane % 2 * 8; };
  static_assert(V_PART <= 1 << 16, "places of 16 bits");
  const unsigned places =
      place_of(unit_tile(warp, lane)) |
      place_of(unit_tile(warp % 2, lane)) + half_pair(warp, lane) * 4 << 16;
  const int first = blockIdx.x / SPLIT_K, stride = gridDim.x / SPLIT_K;
  for (int index = first; index < p.work_tiles + stride; index += stride) {
    const int count = index < p.work_tiles ? steps.end - steps.begin : 0;
    const int ahead = min(1, count);  // stages made before the last work tile's epilogue
    if (count > 0) scales.at(p, index, warp, lane);
#pragma unroll 1
    for (int step = 0; step <= count; ++step) {
      if (step == ahead && index > first) finish(p, shared.staging, index - stride, out);
      if (step == count) break;
#pragma unroll
      for (int g = 0; g < SLOTS; ++g) {
        const bool halved = HALVED && g == SLOTS - 1;
        unsigned pairs[2][ALPHA][PARTS];  // of channels, so that few registers do
        if (halved) {
          Pair pixels[ALPHA];
          fetch.pixels(g, pixels);
          transform(scales.halved, pixels, pairs[0]);
        } else {
          Loaded pixels[ALPHA];
          fetch.pixels(g, pixels);
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            Pair two[ALPHA];
#pragma unroll
            for (int i = 0; i < ALPHA; ++i) two[i] = pair_of(pixels[i], pair);
            transform(scales.own[g % TileScales::COUNT], two, pairs[pair]);
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

__device__ __forceinline__ void consume(const GammaWgmmaParams& p, GammaWgmmaShared& shared) {
  // The same in all lanes, as the compiler sees: descriptors are made in uniform registers.
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const Steps steps(p, SPLIT_K);
  Pipe<V_STAGES> pipe;
  Delivered out{};
  Products products(p, steps, shared.filters, group);
  for (int index = blockIdx.x / SPLIT_K; index < p.work_tiles; index += gridDim.x / SPLIT_K) {
    products.start(p, index);
    float acc[STEPS][SUMS];
#pragma unroll
    for (int j = 0; j < SUMS; ++j)
#pragma unroll
      for (int i = 0; i < STEPS; ++i) acc[i][j] = 0.0f;
#pragma unroll 1
    for (int left = steps.end - steps.begin; left > 0; --left) {
      barrier_wait(&shared.v_full[pipe.stage], pipe.phase);
      const unsigned char* v = shared.v[pipe.stage];
      unsigned long long* empty = &shared.v_empty[pipe.stage];
      if (rest(p, steps.end - left))
        products.template multiply<LAST>(acc, v, empty);
      else
        products.template multiply<SHARE>(acc, v, empty);
      pipe.advance();
    }
    deliver(p, shared.staging, acc, group, index, out);
  }
}

extern "C" __global__ void __cluster_dims__(SPLIT_K * MULTICAST, 1, 1) __launch_bounds__(THREADS, 1)
    winolab_gamma_wgmma(const __grid_constant__ GammaWgmmaParams p) {
  next_launch_may_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  GammaWgmmaShared& shared = *reinterpret_cast<GammaWgmmaShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < V_STAGES; ++s) {
      barrier_init(&shared.v_full[s], PRODUCERS);
      barrier_init(&shared.v_empty[s], V_READERS);
    }
    fetch_init(shared.raw);
    ring_init(shared.filters);
    staging_init(shared.staging);
    barriers_ready();
  }
  __syncthreads();
  if constexpr (SPLIT_K * MULTICAST > 1) cluster_sync();
  // The loader of x itself, which no launch writes, does not wait for the launch before.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const bool loads = warp == (CONSUMERS + PRODUCERS) / 32;
  if (PADDED || !loads) launch_before_done();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else if (threadIdx.x < CONSUMERS + PRODUCERS) {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared);
  } else {
    registers_shrink<LOADER_REGISTERS>();
    const int other = warp - (CONSUMERS + PRODUCERS) / 32 - 1;
    if (loads)
      load(p, shared.raw);
    else if (other >= FILTER_LOADERS / 32)
      attend(p, shared.staging);
    else if (threadIdx.x % 32 == 0)
      bring(p, shared.filters, other);
  }
  if constexpr (SPLIT_K * MULTICAST > 1) cluster_sync();  // other blocks may still read this one's sums
}
