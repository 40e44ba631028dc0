// Fused Γα(n, r) on Tensor Cores: ALPHA independent products of a transformed filter U (from
// filter_tensor.cuh) and transformed input tiles V, summed over (outer tap, channel), then the
// inverse transform.
//
// A block computes BN = 64 output channels × (ROWS × COLUMNS) tiles; the SPLIT blocks of a cluster
// share a summation. One warpgroup of producers loads input tiles, applies BT, splits into PARTS of
// 16 bits and writes V to shared memory; two warpgroups of consumers hold half of the states each: U
// comes from global memory straight into wgmma's A registers, V is B. Parts of a product: high·low,
// low·high, high·high, summed over 16 channels and SHARE filter rows by the Tensor Core, which
// truncates, then added in FP32 outside it. A V stage holds the ROWS + SHARE − 1 input rows that
// SHARE filter rows need. Blocks are persistent: producers run ahead into the next item while
// consumers finish the last.

using Output = Storage<WIDE_OUT>::type;

struct Params {
  const Element* x;
  const uint4* u;
  Output* y;
  Header* header;  // scale.cuh
  const Row* rows;
  long long x_batch, x_depth, x_row, y_batch, y_depth, y_row;  // strides in elements
  int x_pixel, y_pixel;
  int depth, height, width;
  int out_depth, out_height, out_width;
  int pad_depth, pad_height, pad_width;
  int taps_depth, taps_height, taps_width;  // outer taps, summed directly
  int channels, out_channels;
  int tiles_width, columns;  // tiles of n outputs in a row; tile columns of all rows and batches
  int chunks;                // of KC channels
  int blocks_m, blocks_row;  // blocks of BN output channels, of ROWS output rows
  int items;                 // blocks_m × blocks_row × blocks of COLUMNS
};

constexpr int CONSUMERS = 256, PRODUCERS = 128, THREADS = CONSUMERS + PRODUCERS;
constexpr int HELD = ALPHA / 2;                       // states of a consumer warpgroup
constexpr int BT = 512 / ALPHA;                       // tiles
constexpr int HALVES = BT / 64;                       // a state's tiles, 64 a wgmma
constexpr int STEPS = HELD * HALVES;                  // accumulators, of 64 × 64
constexpr int COLUMNS = BT / ROWS;
constexpr int V_TILES = (ROWS + SHARE - 1) * COLUMNS;  // of a V stage
constexpr int UNITS = V_TILES / 8;                    // of 8 tiles × KC channels
constexpr int SLOTS = (UNITS + 3) / 4;                // units of a producer warp
constexpr int V_PART = V_TILES * KC * 2;              // bytes of a state's part
constexpr int V_SIZE = ALPHA * PARTS * V_PART;
constexpr int TILES_OUT = BT / PASSES;                // tiles staged in a pass of the epilogue
constexpr int ROW_OUT = BN + 4;                       // floats: lanes of a store hit 32 banks
static_assert(STEPS == 4 && COLUMNS % 8 == 0 && TILES_OUT % 8 == 0 && BT <= CONSUMERS, "block shape");

struct alignas(4 * sizeof(Element)) Vector {
  Element c[4];  // neighbouring channels of a pixel
};

struct Shared {
  unsigned char v[V_STAGES][V_SIZE];  // [state][part][channel / 8][row][column][channel % 8]
  Vector raw[SLOTS][ALPHA][PRODUCERS];  // a producer's own pixels
  float out[ALPHA][TILES_OUT][ROW_OUT];
  long long offset[BT];  // of a tile's first output in y
  int columns[BT];       // outputs of a tile inside y
  unsigned long long v_full[V_STAGES], v_empty[V_STAGES], out_full, out_empty;
};

// What a block works on: output channels, output rows and tile columns from these on.
struct Item {
  int block_m, row, column;
  __device__ __forceinline__ Item(const Params& p, int index) {
    block_m = index % p.blocks_m;
    index /= p.blocks_m;
    row = index % p.blocks_row * ROWS;
    column = index / p.blocks_row * COLUMNS;
  }
};

// A tile column: one tile's width of one image and depth.
struct Column {
  int batch, depth, first;  // first: output index along the width
  __device__ __forceinline__ Column(const Params& p, int index) {
    first = index % p.tiles_width * N;
    index /= p.tiles_width;
    depth = index % p.out_depth;
    batch = index / p.out_depth;
  }
};

struct Pipe {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == V_STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// This block's share of the summation, in V stages: (outer tap, chunk), chunk fastest.
struct Steps {
  int all, begin, end;
  __device__ __forceinline__ explicit Steps(const Params& p) {
    all = p.taps_depth * (p.taps_height / SHARE) * p.taps_width * p.chunks;
    const int rank = SPLIT > 1 ? cluster_rank() : 0;
    begin = (int)((long long)all * rank / SPLIT);
    end = (int)((long long)all * (rank + 1) / SPLIT);
  }
};

// Where a producer thread reads: it walks over items, outer taps and chunks ahead of the transforms.
struct Fetch {
  const Steps& steps;
  int index, step, chunk, fw, fh, fd;
  const Element* x[SLOTS];  // of the tile's first pixel under the tap, this thread's first channel
  unsigned inside[SLOTS];   // a bit a pixel

  __device__ __forceinline__ Fetch(const Params& p, const Steps& steps)
      : steps(steps), index(blockIdx.x / SPLIT) {
    begin(p);
  }

  __device__ __forceinline__ void begin(const Params& p) {
    step = steps.begin;
    chunk = step % p.chunks;
    const int group = step / p.chunks, row = group / p.taps_width;
    fw = group % p.taps_width;
    fh = row % (p.taps_height / SHARE) * SHARE;
    fd = row / (p.taps_height / SHARE);
    tap(p);
  }

  __device__ __forceinline__ void tap(const Params& p) {
    const Item item(p, index);
    const int warp = (threadIdx.x - CONSUMERS) / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int g = 0; g < SLOTS; ++g) {
      const int tile = (g * 4 + warp) * 8 + lane / 2 % 8;
      const int at = item.column + tile % COLUMNS;
      const Column column(p, at);
      const int d = column.depth + fd - p.pad_depth, w = column.first + fw * R - p.pad_width;
      const int h = item.row + tile / COLUMNS + fh - p.pad_height;
      const bool row = at < p.columns && (unsigned)d < (unsigned)p.depth &&
                       (unsigned)h < (unsigned)p.height && index < p.items;
      inside[g] = 0;
#pragma unroll
      for (int i = 0; i < ALPHA; ++i)
        inside[g] |= (unsigned)(row && (unsigned)(w + i) < (unsigned)p.width) << i;
      x[g] = p.x + column.batch * p.x_batch + d * p.x_depth + h * p.x_row +
             (long long)w * p.x_pixel + lane / 16 * 8 + lane % 2 * 4;
    }
  }

  __device__ __forceinline__ void next(const Params& p) {
    if (++step == steps.end) {
      index += gridDim.x / SPLIT;
      begin(p);
    } else if (++chunk == p.chunks) {
      chunk = 0;
      if (++fw == p.taps_width) {
        fw = 0;
        if ((fh += SHARE) >= p.taps_height) {
          fh = 0;
          ++fd;
        }
      }
      tap(p);
    }
  }

  __device__ __forceinline__ void copy(const Params& p, Shared& shared, int g) const {
    const int thread = threadIdx.x - CONSUMERS, lane = threadIdx.x % 32;
    const int channel = chunk * KC;
    const int left = p.channels - channel - (lane / 16 * 8 + lane % 2 * 4);  // channels from here
    const unsigned mask = left > 0 ? inside[g] : 0;
    const Element* from = x[g] + channel;
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
      Vector* to = &shared.raw[g][i][thread];
      const bool pixel = mask >> i & 1;
      if constexpr (XVEC == 4) {
        copy_async<sizeof(Vector)>(to, pixel ? from + i * p.x_pixel : p.x, pixel);
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const bool element = pixel && c < left;
          const Element* at = element ? from + i * p.x_pixel + c : p.x;
          if constexpr (WIDE)
            copy_async<4>(&to->c[c], at, element);
          else
            to->c[c] = element ? __ldg(at) : Element(0);
        }
      }
    }
  }
};

__device__ __forceinline__ void produce(const Params& p, Shared& shared) {
  const int thread = threadIdx.x - CONSUMERS, warp = thread / 32, lane = thread % 32;
  const float scale = input_scale(p.header);
  const Steps steps(p);
  Pipe pipe;
  Fetch fetch(p, steps);
#pragma unroll
  for (int g = 0; g < SLOTS; ++g) {
    fetch.copy(p, shared, g);
    copy_async_commit();
  }
  fetch.next(p);
  const int place = (lane / 16 * V_TILES + warp * 8 + lane / 2 % 8) * 16 + lane % 2 * 8;
  for (int index = blockIdx.x / SPLIT; index < p.items; index += gridDim.x / SPLIT) {
#pragma unroll 1
    for (int step = steps.begin; step < steps.end; ++step) {
#pragma unroll
      for (int g = 0; g < SLOTS; ++g) {
        copy_async_wait<SLOTS - 1>();
        float d[4][ALPHA], state[4][ALPHA];
#pragma unroll
        for (int i = 0; i < ALPHA; ++i) {
          const Vector pixel = shared.raw[g][i][thread];
#pragma unroll
          for (int c = 0; c < 4; ++c) d[c][i] = __fmul_rn(scale, value(pixel.c[c]));
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) transform_input(d[c], state[c]);
        fetch.copy(p, shared, g);
        copy_async_commit();
        if (g == 0) barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
        if (UNITS % 4 == 0 || g * 4 + warp < UNITS) {
          unsigned char* v = shared.v[pipe.stage] + place + g * 4 * 8 * 16;
#pragma unroll
          for (int s = 0; s < ALPHA; ++s) {
            unsigned low[PARTS], high[PARTS];
            split(state[0][s], state[1][s], low);
            split(state[2][s], state[3][s], high);
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
              *reinterpret_cast<uint2*>(v + (s * PARTS + part) * V_PART) =
                  make_uint2(low[part], high[part]);
          }
        }
      }
      fence_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(&shared.v_full[pipe.stage]);
      pipe.advance();
      fetch.next(p);
    }
  }
}

// U in a stage, in vectors: of a filter row; from this group's first state, in the order of use.
constexpr int U_ROW = ALPHA * PARTS * 128;
constexpr int FILTERS = HELD * SHARE;
// Filters in registers: those that wait for L2; with two halves, at least all of a state.
constexpr int RING = HALVES == 1 ? HELD : SHARE > 2 ? SHARE : 2;
static_assert(FILTERS % RING == 0, "a filter's registers are the same in every stage");
__device__ constexpr int filter_offset(int i) {
  return i % SHARE * U_ROW + i / SHARE * (PARTS * 128);
}

// U's registers of one state and all of its parts.
__device__ __forceinline__ void load_filter(unsigned (&a)[PARTS][4], const uint4* u) {
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    const uint4 v = __ldg(u + part * 128);
    a[part][0] = v.x, a[part][1] = v.y, a[part][2] = v.z, a[part][3] = v.w;
  }
}

// The registers of filter i of a stage are free: they take the one that comes RING later.
__device__ __forceinline__ void refill(unsigned (&a)[RING][PARTS][4], const uint4* u,
                                       const uint4* u_next, int i) {
  load_filter(a[i % RING], (i + RING < FILTERS ? u : u_next) + filter_offset((i + RING) % FILTERS));
}

// The output transform: staged by tile, so that a warp stores whole rows of output channels. Blocks
// of a cluster take different elements, and add what all of them staged.
__device__ __forceinline__ void finish(const Params& p, Shared& shared, const float (&acc)[STEPS][32],
                                       const Item& item, unsigned& phase) {
  const int rank = SPLIT > 1 ? cluster_rank() : 0;
  const int thread = threadIdx.x, group = thread / 128, warp = thread / 32 % 4;
  const int g = thread % 32 / 4, q = thread % 4;
  const int m = thread % (BN / 4) * 4, channel = item.block_m * BN + m;  // of the thread's outputs
  Watched watched(p.header, p.rows, channel);
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    if constexpr (SPLIT == 1)
      consumers_sync<CONSUMERS>();
    else
      barrier_acquire_cluster(&shared.out_empty, phase ^ 1);
    if (pass == 0 && thread < BT) {
      const int at = item.column + thread % COLUMNS, row = item.row + thread / COLUMNS;
      const Column column(p, at);
      shared.offset[thread] = column.batch * p.y_batch + column.depth * p.y_depth +
                              row * p.y_row + (long long)column.first * p.y_pixel;
      shared.columns[thread] =
          at < p.columns && row < p.out_height ? min(N, p.out_width - column.first) : 0;
    }
#pragma unroll
    for (int s = 0; s < HELD; ++s)
#pragma unroll
      for (int j = 0; j < TILES_OUT / 8; ++j) {
        const int column = pass * (TILES_OUT / 8) + j;  // of 8 tiles
        float* out = &shared.out[group * HELD + s][j * 8 + q * 2][warp * 16 + g];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          out[e % 2 * ROW_OUT + e / 2 * 8] = acc[s * HALVES + column / 8][column % 8 * 4 + e];
      }
    if constexpr (SPLIT == 1) {
      consumers_sync<CONSUMERS>();
    } else {
      __syncwarp();
      if (thread % 32 < SPLIT)
        barrier_release_cluster(cluster_pointer(&shared.out_full, thread % 32));
      barrier_acquire_cluster(&shared.out_full, phase);
    }
#pragma unroll 1
    for (int e = rank * CONSUMERS + thread; e < TILES_OUT * BN / 4; e += SPLIT * CONSUMERS) {
      const int local = e / (BN / 4), tile = pass * TILES_OUT + local;
      float state[4][ALPHA], y[4][N];
#pragma unroll
      for (int s = 0; s < ALPHA; ++s) {
        const float* out = &shared.out[s][local][m];
        if constexpr (SPLIT == 1) {
          const float4 v = *reinterpret_cast<const float4*>(out);
          state[0][s] = v.x, state[1][s] = v.y, state[2][s] = v.z, state[3][s] = v.w;
        } else {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            state[c][s] = cluster_load(out + c, 0);
#pragma unroll
            for (int other = 1; other < SPLIT; ++other)
              state[c][s] = __fadd_rn(state[c][s], cluster_load(out + c, other));
          }
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) transform_output(state[c], y[c]);
      Output* to = p.y + shared.offset[tile] + channel;
      const int columns = channel < p.out_channels ? shared.columns[tile] : 0;
      watched.tile(y, columns);
#pragma unroll
      for (int o = 0; o < N; ++o) {
        if (o < columns) {
          float v[4];
#pragma unroll
          for (int c = 0; c < 4; ++c) v[c] = y[c][o];
          store(to + (long long)o * p.y_pixel, v, p.out_channels - channel);
        }
      }
    }
    if constexpr (SPLIT > 1) {
      __syncwarp();
      if (thread % 32 < SPLIT)
        barrier_release_cluster(cluster_pointer(&shared.out_empty, thread % 32));
      phase ^= 1;
    }
  }
  watched.channels();
}

// Keeps the compiler from computing a row's descriptors ahead, in registers that it lacks.
__device__ __forceinline__ unsigned long long opaque(unsigned long long v) {
  asm volatile("" : "+l"(v));
  return v;
}

__device__ __forceinline__ void add(float (&acc)[32], const float (&part)[32]) {
#pragma unroll
  for (int j = 0; j < 32; ++j) acc[j] = __fadd_rn(acc[j], part[j]);
}

__device__ __forceinline__ void consume(const Params& p, Shared& shared) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, thread = threadIdx.x % 128;
  const Steps steps(p);
  Pipe pipe;
  unsigned phase = 0;  // of the epilogue's barriers
  for (int index = blockIdx.x / SPLIT; index < p.items; index += gridDim.x / SPLIT) {
    const Item item(p, index);
    // This group's states of a filter row of a stage; the next row's are U_ROW further on.
    const uint4* u = p.u +
                     ((long long)item.block_m * steps.all + steps.begin) * (SHARE * U_ROW) +
                     group * HELD * PARTS * 128 + thread;
    float acc[STEPS][32], part[32];
    unsigned a[RING][PARTS][4];
#pragma unroll
    for (int i = 0; i < RING; ++i) load_filter(a[i], u + filter_offset(i));
#pragma unroll
    for (int j = 0; j < 32; ++j)
#pragma unroll
      for (int i = 0; i < STEPS; ++i) acc[i][j] = 0.0f;
#pragma unroll 1
    for (int step = steps.begin; step < steps.end; ++step) {
      barrier_wait(&shared.v_full[pipe.stage], pipe.phase);
      unsigned long long v = matrix_descriptor(
          shared.v[pipe.stage] + group * HELD * PARTS * V_PART, V_TILES * 16, 128);
      const uint4* u_next = step + 1 < steps.end ? u + SHARE * U_ROW : u;
#pragma unroll
      for (int s = 0; s < HELD; ++s) {
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
#pragma unroll
          for (int f = 0; f < SHARE; ++f) {
            const int i = s * SHARE + f, offset = (f * COLUMNS + half * 64) * 16;
            unsigned(&filter)[PARTS][4] = a[i % RING];
            wgmma_fence();
            if constexpr (PARTS == 2) {
              wgmma<64, BF16>(part, filter[0], descriptor_offset(v, offset + V_PART), f > 0);
              wgmma<64, BF16>(part, filter[1], descriptor_offset(v, offset), true);
            }
            wgmma<64, BF16>(part, filter[0], descriptor_offset(v, offset), PARTS == 2 || f > 0);
            wgmma_commit();
            if (f > 0) {
              wgmma_wait<1>();
              if (half == HALVES - 1) refill(a, u, u_next, i - 1);
            }
          }
          wgmma_wait<0>();
          if (half == HALVES - 1) refill(a, u, u_next, s * SHARE + SHARE - 1);
          add(acc[s * HALVES + half], part);
        }
        v = opaque(descriptor_offset(v, PARTS * V_PART));
      }
      if (lane == 0) barrier_arrive(&shared.v_empty[pipe.stage]);
      pipe.advance();
      u = u_next;
    }
    finish(p, shared, acc, item, phase);
  }
}

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    winolab_gamma(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < V_STAGES; ++s) {
      barrier_init(&shared.v_full[s], PRODUCERS / 32);
      barrier_init(&shared.v_empty[s], CONSUMERS / 32);
    }
    barrier_init(&shared.out_full, CONSUMERS / 32 * SPLIT);
    barrier_init(&shared.out_empty, CONSUMERS / 32 * SPLIT);
    barriers_ready();
  }
  __syncthreads();
  if constexpr (SPLIT > 1) cluster_sync();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared);
  }
  if constexpr (SPLIT > 1) cluster_sync();  // the other block may still signal this one
}
