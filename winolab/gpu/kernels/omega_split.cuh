// dW of FP32 data by direct products on wgmma, of x and dy as they lie in memory: nothing is
// transformed, and the only workspace is two headers (scale.cuh) and the segments' sums.
//
// Positions, pitch and neighbouring taps are omega_direct.cuh's. Producers copy FP32 to shared memory, RAW
// stages ahead, or load it to registers where these have room for a stage (RAW 0), scale it by its tensor's power of two and store FP16 parts as wgmma reads them with the
// 128-byte swizzle. Consumers keep dy's parts of a stage in
// registers, so that shared memory serves x alone: 64 instead of 128 bytes a cycle. What the Tensor
// Core sums, and truncates, is low·high + high·low of a stage and then its high·high; these partial
// sums of 64 columns are added to FP32 accumulators outside.

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
        const unsigned long long high =
            descriptor_offset(b, (i / GROUP_TAPS * ROWS + i % GROUP_TAPS) * 128);
        const unsigned long long low = descriptor_offset(high, PLANES * ROWS * 128);
        wgmma_pin(sum[i % SUMS]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < GROUP_KS / 16; ++k) {
          wgmma<64, false, true>(sum[i % SUMS], a[k][1], descriptor_offset(high, k * 2048), k > 0);
          wgmma<64, false, true>(sum[i % SUMS], a[k][0], descriptor_offset(low, k * 2048), true);
        }
#pragma unroll
        for (int k = 0; k < GROUP_KS / 16; ++k)
          wgmma<64, false, true>(sum[i % SUMS], a[k][0], descriptor_offset(high, k * 2048), true);
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
      const int t = piece % GROUP_TAPS, under = i / 2 % 2 * 8;
      const int in = piece / GROUP_TAPS * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2;
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
