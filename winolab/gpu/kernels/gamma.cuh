// Fused Γα(n, r): ALPHA independent products of a transformed filter U (from filter.cuh) and
// transformed input tiles V, summed over (outer tap, channel), then the inverse transform.
//
// A block computes BN output channels × (ROWS × COLUMNS) tiles. Its producer warps load input
// tiles, apply BT and write V to shared memory; bulk copies bring U, or, before compute capability
// 9.0 (BULK 0), the producers' own asynchronous copies. Its consumer warps run outer
// products out of shared memory, each warp one part of the states, and apply AT at the end. A V
// stage holds the ROWS + SHARE − 1 input rows that SHARE filter rows need: it is transformed once
// and serves SHARE U stages. Blocks are persistent: producers run ahead into the next item while
// consumers finish the last.

struct Params {
  const float* x;
  const float* u;
  float* y;
  const int* wanted;  // guard.cuh
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
constexpr int WARPS = CONSUMERS / 32;
constexpr int STATES = ALPHA > WARPS ? ALPHA / WARPS : 1;          // states of a warp
constexpr int SHARERS = ALPHA < WARPS ? WARPS / ALPHA : 1;         // warps of a state
constexpr int TM = BN / 8, TT = BT / SHARERS / 4;                  // outputs × tiles of a lane
constexpr int INNER = TM > TT ? TT : TM;
constexpr int COLUMNS = BT / ROWS;
constexpr int V_TILES = (ROWS + SHARE - 1) * COLUMNS;              // of a V stage
// Channels in flight: scalar loads too wait for memory once, where registers allow.
constexpr int LOADED = XVEC == 1 && ALPHA < 16 ? CPT : XVEC;
constexpr int LPT = KC / CPT;                                      // producer lanes of a tile
constexpr int SLOTS = PRODUCERS / LPT;                             // tiles that producers hold
constexpr int GROUPS = (V_TILES + SLOTS - 1) / SLOTS;              // tiles of a producer thread

// Floats between V's channels: a producer warp, which holds 32 / LPT tiles × LPT channel groups,
// writes to different banks as far as the 16-byte alignment of the consumers' reads lets it.
__device__ constexpr int v_stride() {
  int stride = (V_TILES + 3) / 4 * 4;
  const int apart = (32 / LPT + 4 * CPT - 1) / (4 * CPT) * (4 * CPT) % 32;  // groups, in banks
  while (CPT * stride % 32 != apart) stride += 4;
  return stride;
}
constexpr int V_STRIDE = v_stride();
constexpr int U_SIZE = ALPHA * KC * BN, V_SIZE = ALPHA * KC * V_STRIDE;  // floats of a stage
constexpr int ROW = BN / PASSES;                                   // outputs staged in a pass
static_assert(KC % CPT == 0 && (XVEC == 1 || XVEC == CPT), "producer shape");
static_assert(BT % ROWS == 0 && COLUMNS % 4 == 0, "four tiles of a vector lie in one row");
static_assert(BT / SHARERS % 16 == 0 && TM % (4 * PASSES) == 0 && BT % 8 == 0 && BT <= CONSUMERS, "tile shape");

struct Shared {
  float u[U_STAGES][U_SIZE];  // [state][channel][output]
  float v[V_STAGES][V_SIZE];  // [state][channel][row][column]
  float out[ALPHA * BT * ROW];  // [state][tile][output, permuted]
  long long offset[BT];  // of a tile's first output in y
  int columns[BT];       // outputs of a tile inside y
  unsigned long long u_full[U_STAGES], u_empty[U_STAGES], v_full[V_STAGES], v_empty[V_STAGES];
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

template <int STAGES>
struct Pipe {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
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

// LOADED channels of one pixel, of which ``left`` are there: all or none where they come together.
__device__ __forceinline__ void load_channels(float (&d)[LOADED], const float* x, bool inside,
                                              int left) {
  if constexpr (XVEC == 4) {
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (inside) v = __ldg(reinterpret_cast<const float4*>(x));
    d[0] = v.x, d[1] = v.y, d[2] = v.z, d[3] = v.w;
  } else if constexpr (XVEC == 2) {
    float2 v = make_float2(0.0f, 0.0f);
    if (inside) v = __ldg(reinterpret_cast<const float2*>(x));
    d[0] = v.x, d[1] = v.y;
  } else {
#pragma unroll
    for (int c = 0; c < LOADED; ++c) d[c] = inside && c < left ? __ldg(x + c) : 0.0f;
  }
}

__device__ __forceinline__ void produce(const Params& p, Shared& shared) {
  const int thread = threadIdx.x - CONSUMERS;
  const int group = thread % LPT, slot = thread / LPT;
  const Steps steps(p);
  Pipe<V_STAGES> pipe;
  Pipe<U_STAGES> u_pipe;
  for (int index = blockIdx.x / SPLIT; index < p.items; index += gridDim.x / SPLIT) {
    const Item item(p, index);
    const float* origin[GROUPS];  // of the tile's image, channel group 0
    int depth0[GROUPS], row0[GROUPS], width0[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
      const int tile = slot + g * SLOTS, at = item.column + tile % COLUMNS;
      const Column column(p, at);
      depth0[g] = column.depth - p.pad_depth;
      row0[g] = at < p.columns ? item.row + tile / COLUMNS - p.pad_height : -(1 << 30);
      width0[g] = column.first - p.pad_width;
      origin[g] = p.x + column.batch * p.x_batch + group * CPT;
    }
    int chunk = steps.begin % p.chunks, tap = steps.begin / p.chunks;
    int fw = tap % p.taps_width, fh = tap / p.taps_width % (p.taps_height / SHARE) * SHARE,
        fd = tap / p.taps_width / (p.taps_height / SHARE);
    const float* u =
        p.u + ((long long)item.block_m * steps.all + steps.begin) * (SHARE * U_SIZE);
    const float* x[GROUPS];
    unsigned inside[GROUPS];
    bool new_tap = true;
    for (int step = steps.begin; step < steps.end; ++step) {
      if (new_tap) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
          const int d = depth0[g] + fd, h = row0[g] + fh, w = width0[g] + fw * R;
          const bool row = (unsigned)d < (unsigned)p.depth && (unsigned)h < (unsigned)p.height;
          inside[g] = 0;
#pragma unroll
          for (int i = 0; i < ALPHA; ++i)
            inside[g] |= (unsigned)(row && (unsigned)(w + i) < (unsigned)p.width) << i;
          x[g] = origin[g] + d * p.x_depth + h * p.x_row + (long long)w * p.x_pixel;
        }
        new_tap = false;
      }
#pragma unroll
      for (int g = 0; g < GROUPS; ++g) {
        const int tile = slot + g * SLOTS;
        const bool mine = V_TILES % SLOTS == 0 || tile < V_TILES;
        float* v = shared.v[pipe.stage] + group * CPT * V_STRIDE + tile;
#pragma unroll 1
        for (int part = 0; part < CPT; part += LOADED) {
          const int channel = chunk * KC + part, left = p.channels - channel - group * CPT;
          const unsigned mask = left > 0 ? inside[g] : 0;
          float d[ALPHA][LOADED];
#pragma unroll
          for (int i = 0; i < ALPHA; ++i)
            load_channels(d[i], x[g] + channel + i * p.x_pixel, mask >> i & 1, left);
          if (g == 0 && part == 0) barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
          if (mine) {
#pragma unroll
            for (int c = 0; c < LOADED; ++c) {
              float column[ALPHA], state[ALPHA];
#pragma unroll
              for (int i = 0; i < ALPHA; ++i) column[i] = d[i][c];
              transform_input(column, state);
#pragma unroll
              for (int s = 0; s < ALPHA; ++s) v[(s * KC + part + c) * V_STRIDE] = state[s];
            }
          }
        }
      }
      __syncwarp();
      if (thread % 32 == 0) barrier_arrive(&shared.v_full[pipe.stage]);
      pipe.advance();
      // The U stages that meet this V stage; the last of them are still to be used when the next V
      // stage is made.
      if constexpr (!BULK) {
        for (int row = 0; row < SHARE; ++row) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
#pragma unroll 4
          for (int i = 4 * thread; i < U_SIZE; i += 4 * PRODUCERS)
            copy_async<16>(shared.u[u_pipe.stage] + i, u + i, true);
          copy_async_arrive(&shared.u_full[u_pipe.stage]);
          u += U_SIZE;
          u_pipe.advance();
        }
      } else if (thread == 0) {
        for (int row = 0; row < SHARE; ++row) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
          barrier_arrive_expect(&shared.u_full[u_pipe.stage], U_SIZE * 4);
          bulk_copy(shared.u[u_pipe.stage], u, U_SIZE * 4, &shared.u_full[u_pipe.stage]);
          u += U_SIZE;
          u_pipe.advance();
        }
      }
      __syncwarp();
      if (++chunk == p.chunks) {
        chunk = 0;
        new_tap = true;
        if (++fw == p.taps_width) {
          fw = 0;
          if ((fh += SHARE) == p.taps_height) fh = 0, ++fd;
        }
      }
    }
    if constexpr (SPLIT > 1)
      for (int i = 0; i < 2 * PASSES; ++i) cluster_sync();
  }
}

// A staged value, summed over the blocks that share the summation, in the order of their ranks.
__device__ __forceinline__ float reduced(const float* staged) {
  if constexpr (SPLIT == 1) return *staged;
  float sum = cluster_load(staged, 0);
#pragma unroll
  for (int r = 1; r < SPLIT; ++r) sum = __fadd_rn(sum, cluster_load(staged, r));
  return sum;
}

// The output transform: staged by tile, so that a warp stores whole rows of output channels.
// Accumulators are staged one float at a time: a vector store would tie their registers' banks, and
// an FFMA that reads a, b and an accumulator from one bank takes two cycles. Four floats of a lane
// are rotated by its tile, so that a warp writes to 32 different banks.
__device__ __forceinline__ void finish(const Params& p, Shared& shared,
                                       const float (&acc)[STATES][TT][TM], const Item& item,
                                       int state0, int tile0) {
  const int ln = threadIdx.x % 8, lt = threadIdx.x / 8 % 4;
  const int rank = SPLIT > 1 ? cluster_rank() : 0;
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    if constexpr (SPLIT > 1)
      cluster_sync();
    else
      consumers_sync<CONSUMERS>();
    if (pass == 0 && threadIdx.x < BT) {
      const int at = item.column + threadIdx.x % COLUMNS, row = item.row + threadIdx.x / COLUMNS;
      const Column column(p, at);
      shared.offset[threadIdx.x] = column.batch * p.y_batch + column.depth * p.y_depth +
                                   row * p.y_row + (long long)column.first * p.y_pixel;
      shared.columns[threadIdx.x] =
          at < p.columns && row < p.out_height ? min(N, p.out_width - column.first) : 0;
    }
#pragma unroll
    for (int s = 0; s < STATES; ++s)
#pragma unroll
      for (int j = 0; j < TT; ++j) {
        float* row = shared.out +
                     ((state0 + s) * BT + tile0 + j / 4 * 16 + lt * 4 + j % 4) * ROW + ln;
#pragma unroll
        for (int i = 0; i < TM / PASSES; ++i)
          row[i / 4 * 32 + ((i + lt) % 4) * 8] = acc[s][j][pass * (TM / PASSES) + i];
      }
    if constexpr (SPLIT > 1)
      cluster_sync();
    else
      consumers_sync<CONSUMERS>();
    // A half-warp takes 32 channels of a tile, the other half those of the tile four further on,
    // which lies in the other banks.
#pragma unroll 1
    for (int e = rank * CONSUMERS + threadIdx.x; e < BT * ROW / 2; e += CONSUMERS * SPLIT) {
      const int pair = e % 16, part = e / 128 % (ROW / 32);
      const int tile = e / (4 * ROW) * 8 + e / 16 % 2 * 4 + e / 32 % 4;
      const int first = pair / 8 * 2;  // of the four floats that a lane staged
      const int channel = item.block_m * BN + pass * ROW + part * 32 + pair % 8 * 4 + first;
      const float* staged = shared.out + tile * ROW + part * 32 + pair % 8;
      const int at_even = (first + tile / 4) % 4 * 8, at_odd = (first + 1 + tile / 4) % 4 * 8;
      float even[ALPHA], odd[ALPHA], y_even[N], y_odd[N];
#pragma unroll
      for (int s = 0; s < ALPHA; ++s) {
        even[s] = reduced(staged + s * BT * ROW + at_even);
        odd[s] = reduced(staged + s * BT * ROW + at_odd);
      }
      transform_output(even, y_even);
      transform_output(odd, y_odd);
      float* y = p.y + shared.offset[tile] + channel;
      const int columns = channel < p.out_channels ? shared.columns[tile] : 0;
#pragma unroll
      for (int o = 0; o < N; ++o) {
        if (o < columns) {
          if constexpr (YVEC == 2) {
            *reinterpret_cast<float2*>(y + (long long)o * p.y_pixel) =
                make_float2(y_even[o], y_odd[o]);
          } else {
            y[(long long)o * p.y_pixel] = y_even[o];
            if (channel + 1 < p.out_channels) y[(long long)o * p.y_pixel + 1] = y_odd[o];
          }
        }
      }
    }
  }
}

__device__ __forceinline__ void load_fragments(float (&a)[TM], float (&b)[TT], const float* u,
                                               const float* v) {
#pragma unroll
  for (int i = 0; i < TM; i += 4)
    *reinterpret_cast<float4*>(&a[i]) = *reinterpret_cast<const float4*>(u + i * 8);
#pragma unroll
  for (int j = 0; j < TT; j += 4)
    *reinterpret_cast<float4*>(&b[j]) = *reinterpret_cast<const float4*>(v + j * 4);
}

__device__ __forceinline__ void consume(const Params& p, Shared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, ln = lane % 8, lt = lane / 8;
  const int state0 = warp / SHARERS * STATES, tile0 = warp % SHARERS * (BT / SHARERS);
  const Steps steps(p);
  Pipe<U_STAGES> u_pipe;
  Pipe<V_STAGES> v_pipe;
  for (int index = blockIdx.x / SPLIT; index < p.items; index += gridDim.x / SPLIT) {
    float acc[STATES][TT][TM];
#pragma unroll
    for (int s = 0; s < STATES; ++s)
#pragma unroll
      for (int j = 0; j < TT; ++j)
#pragma unroll
        for (int i = 0; i < TM; ++i) acc[s][j][i] = 0.0f;
    for (int step = steps.begin; step < steps.end; ++step) {
      barrier_wait(&shared.v_full[v_pipe.stage], v_pipe.phase);
#pragma unroll 1
      for (int f = 0; f < SHARE; ++f) {
        barrier_wait(&shared.u_full[u_pipe.stage], u_pipe.phase);
        const float* u = shared.u[u_pipe.stage] + state0 * KC * BN + ln * 4;
        const float* v =
            shared.v[v_pipe.stage] + state0 * KC * V_STRIDE + tile0 + f * COLUMNS + lt * 4;
        float a[2][TM], b[2][TT];
        load_fragments(a[0], b[0], u, v);
#pragma unroll
        for (int q = 0; q < KC * STATES; ++q) {
          const int next = q + 1, s = q % STATES, at = next % STATES * KC + next / STATES;
          if (next < KC * STATES)
            load_fragments(a[next % 2], b[next % 2], u + at * BN, v + at * V_STRIDE);
          // Serpentine, the longer side outside: every FFMA reuses an operand of the one before.
#pragma unroll
          for (int e = 0; e < TM * TT; ++e) {
            const int outer = e / INNER, inner = outer % 2 ? INNER - 1 - e % INNER : e % INNER;
            const int i = TM > TT ? outer : inner, j = TM > TT ? inner : outer;
            acc[s][j][i] = __fmaf_rn(a[q % 2][i], b[q % 2][j], acc[s][j][i]);
          }
        }
        // Every lane for itself: nothing says that a warp's lanes leave a wait together.
        reads_done();
        barrier_arrive(&shared.u_empty[u_pipe.stage]);
        u_pipe.advance();
      }
      barrier_arrive(&shared.v_empty[v_pipe.stage]);
      v_pipe.advance();
    }
    finish(p, shared, acc, Item(p, index), state0, tile0);
  }
}

extern "C" __global__ void
#if __CUDA_ARCH__ >= 900  // before, there are no clusters, and SPLIT is 1
    __cluster_dims__(SPLIT, 1, 1)
#endif
        __launch_bounds__(THREADS, 1)
    winolab_gamma(const __grid_constant__ Params p) {
  if (!wanted(p.wanted)) return;
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < U_STAGES; ++s) {
      barrier_init(&shared.u_full[s], BULK ? 1 : PRODUCERS);  // the threads that start copies
      barrier_init(&shared.u_empty[s], CONSUMERS);
    }
    for (int s = 0; s < V_STAGES; ++s) {
      barrier_init(&shared.v_full[s], PRODUCERS / 32);
      barrier_init(&shared.v_empty[s], CONSUMERS);
    }
    if constexpr (BULK) barriers_ready();
  }
  __syncthreads();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared);
  }
  if constexpr (SPLIT > 1) cluster_sync();  // peers may still read this block's shared memory
}
