// The output transform of a Γ kernel. Consumers stage their accumulators in shared memory; finishers,
// or, where there are none, the consumers themselves, read them, add what the blocks of a cluster
// have summed, apply AT and store y.

// Accumulators are staged by tile, one float at a time: a vector store would tie their registers'
// banks, and an FFMA that reads a, b and an accumulator from one bank takes two cycles. Four floats
// of a lane are rotated by its tile, so that a warp writes to 32 different banks.
__device__ __forceinline__ void stage(Shared& shared, const float (&acc)[STATES][TT][TM], int pass,
                                      int state0, int tile0) {
  const int ln = threadIdx.x % 8, lt = threadIdx.x / 8 % 4;
#pragma unroll
  for (int s = 0; s < STATES; ++s)
#pragma unroll
    for (int j = 0; j < TT; ++j) {
      float* row =
          shared.out + ((state0 + s) * BT + tile0 + j / 4 * 16 + lt * 4 + j % 4) * ROW + ln;
#pragma unroll
      for (int i = 0; i < TM / PASSES; ++i)
        row[i / 4 * 32 + (i + lt) % 4 * 8] = acc[s][j][pass * (TM / PASSES) + i];
    }
}

// Where the outputs of an item's tiles lie, and how many there are.
__device__ __forceinline__ void locate(const Params& p, Shared& shared, const Item& item,
                                       int thread) {
  for (int tile = thread; tile < BT; tile += STORERS) {
    const int at = item.column + tile % COLUMNS, row = item.row + tile / COLUMNS;
    const Column column(p, at);
    shared.offset[tile] = column.batch * p.y_batch + column.depth * p.y_depth + row * p.y_row +
                          (long long)column.first * p.y_pixel;
    shared.columns[tile] =
        at < p.columns && row < p.out_height ? min(N, p.out_width - column.first) : 0;
  }
}

// A staged value, summed over the blocks that share the summation, in the order of their ranks.
template <int PARTS>
__device__ __forceinline__ float reduced(const float* staged) {
  if constexpr (PARTS == 1) return *staged;
  float sum = cluster_load(staged, 0);
#pragma unroll
  for (int r = 1; r < PARTS; ++r) sum = __fadd_rn(sum, cluster_load(staged, r));
  return sum;
}

// Tiles at once. More than one for finishers disturbs how the consumers' registers are laid out.
constexpr int STORED = FINISHERS ? 1 : 2;

// This block's part of a pass's outputs. A warp takes 32 channels of a tile.
template <int PARTS>
__device__ __forceinline__ void store_part(const Params& p, const Shared& shared, const Item& item,
                                           int pass, int thread) {
  const int warp = thread / 32, lane = thread % 32, rank = PARTS > 1 ? cluster_rank() : 0;
#pragma unroll STORED
  for (int e = rank * (STORERS / 32) + warp; e < BT * ROW / 32; e += PARTS * STORERS / 32) {
    const int tile = e / (ROW / 32), part = e % (ROW / 32);
    const float* staged = shared.out + tile * ROW + part * 32 + lane;
    float state[ALPHA], out[N];
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) state[s] = reduced<PARTS>(staged + s * BT * ROW);
    transform_output(state, out);
    // What stage() has put there.
    const int channel = item.block_m * BN + pass * ROW + part * 32 + lane % 8 * 4 +
                        (lane / 8 + 4 - tile / 4 % 4) % 4;
    float* y = p.y + shared.offset[tile] + channel;
    const int columns = channel < p.out_channels ? shared.columns[tile] : 0;
#pragma unroll
    for (int o = 0; o < N; ++o) {
      if (o < columns) *y = out[o];
      y += p.y_pixel;
    }
  }
}

// The outputs of a staged pass, by the blocks that share the item: not before all have staged it,
// and until all have read it.
__device__ __forceinline__ void store(const Params& p, Shared& shared, const Item& item, int pass,
                                      int parts, Pipe<1>& peers, int thread) {
  if constexpr (SPLIT > 1) {
    if (parts > 1) {
      if (thread < SPLIT) barrier_release_cluster(cluster_pointer(&shared.peers_full, thread));
      barrier_acquire_cluster(&shared.peers_full, peers.phase);
      store_part<SPLIT>(p, shared, item, pass, thread);
      __syncwarp();
      if (thread % 32 < SPLIT)
        barrier_release_cluster(cluster_pointer(&shared.peers_empty, thread % 32));
      barrier_acquire_cluster(&shared.peers_empty, peers.phase);
      peers.advance();
      return;
    }
  }
  store_part<1>(p, shared, item, pass, thread);
}

__device__ __forceinline__ void finish(const Params& p, Shared& shared) {
  const int thread = threadIdx.x - (CONSUMERS + PRODUCERS);
  Pipe<1> pipe, peers;
  for (Work work(p); work.left(p); work.next(p)) {
    const Item item(p, work.index);
    storers_sync<STORERS>();
    locate(p, shared, item, thread);
    storers_sync<STORERS>();
#pragma unroll 1
    for (int pass = 0; pass < PASSES; ++pass) {
      barrier_wait(&shared.out_full, pipe.phase);
      store(p, shared, item, pass, work.parts, peers, thread);
      barrier_arrive(&shared.out_empty);
      pipe.advance();
    }
  }
}
