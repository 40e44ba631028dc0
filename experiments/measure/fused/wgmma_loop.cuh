// The main loop that a fused F(2×2,3×3) on wgmma would have, without loads and without an output
// transform: what it multiplies and transforms lies in shared memory from the start, and its sums are
// thrown away. Its results are wrong; its time is one that the whole kernel cannot beat.
//
// A block computes 64 channels × TILES tiles in 16 states, 16 channels a stage. Two warpgroups of
// consumers have eight states each; filters are A, in registers that nothing refills, tiles are B, in
// shared memory. One warpgroup of producers (TRANSFORMS) applies BT to a box of pixels, splits into
// PARTS of 16 bits and writes V. PARTS 2: three products of a state go to a sum of their own, which is
// added in FP32 outside the Tensor Core; PARTS 1: the Tensor Core
// adds, a stage ahead of its barrier.
//
// Barriers: v_full[stage], every producer → consumers; v_empty[stage], every consumer → producers.

struct LoopParams {
  float* out;       // nothing is written to it, which no compiler knows
  int seed, turns;  // what registers are filled with; stages
};

constexpr int STATES = ALPHA * ALPHA, HELD = STATES / 2, KC = 16;
constexpr int CONSUMERS = 256, PRODUCERS = 128, SUMS = TILES / 2;
constexpr int HALF = TILES * 16;     // bytes of 8 channels of a part: [tile][channel % 8]
constexpr int PART = 2 * HALF, V_SIZE = STATES * PARTS * PART;
constexpr int COLUMNS = 8, BOX_WIDTH = 2 * COLUMNS + 2, BOX_HEIGHT = 2 * (TILES / COLUMNS) + 2;
constexpr int PITCH = KC + 4;        // elements from a pixel to the next: no bank conflicts
using Pixel = Either<PARTS == 2, float, unsigned short>::type;

struct LoopShared {
  alignas(128) unsigned char v[STAGES][V_SIZE];  // [state][part][channel / 8][tile][channel % 8]
  alignas(16) Pixel box[BOX_HEIGHT * BOX_WIDTH * PITCH];
  unsigned long long v_full[STAGES], v_empty[STAGES];
};
static_assert(sizeof(LoopShared) <= SHARED, "as the host has it");

__device__ __forceinline__ void pixel(const Pixel* from, float (&to)[2]) {
  if constexpr (PARTS == 2) {
    const float2 two = *reinterpret_cast<const float2*>(from);
    to[0] = two.x, to[1] = two.y;
  } else {
    unpack(*reinterpret_cast<const unsigned*>(from), to[0], to[1]);
  }
}

// Two channels of a tile to V.
__device__ __forceinline__ void transform_unit(const Pixel* from, unsigned char* to) {
  float half[ALPHA][ALPHA][2];  // [column][state of the height][channel]
#pragma unroll
  for (int j = 0; j < ALPHA; ++j) {
    float column[2][ALPHA], states[2][ALPHA];
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
      float two[2];
      pixel(from + (i * BOX_WIDTH + j) * PITCH, two);
      column[0][i] = two[0], column[1][i] = two[1];
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) transform_input(column[c], states[c]);
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) half[j][i][0] = states[0][i], half[j][i][1] = states[1][i];
  }
#pragma unroll
  for (int i = 0; i < ALPHA; ++i) {
    float row[2][ALPHA], states[2][ALPHA];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int j = 0; j < ALPHA; ++j) row[c][j] = half[j][i][c];
      transform_input(row[c], states[c]);
    }
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
      unsigned char* at = to + (i * ALPHA + j) * PARTS * PART;
      const unsigned high = pack(states[0][j], states[1][j]);
      *reinterpret_cast<unsigned*>(at) = high;
      if constexpr (PARTS == 2) {
        float first, second;
        unpack(high, first, second);
        *reinterpret_cast<unsigned*>(at + PART) = pack(states[0][j] - first, states[1][j] - second);
      }
    }
  }
}

__device__ __forceinline__ void produce(const LoopParams& p, LoopShared& shared) {
  const int thread = threadIdx.x - CONSUMERS, warp = thread / 32, lane = thread % 32;
  Pipe<STAGES> pipe;
#pragma unroll 1
  for (int turn = 0; turn < p.turns; ++turn) {
    barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll 1
    for (int unit = warp; unit < TILES / COLUMNS * 2; unit += PRODUCERS / 32) {
      const int row = unit / 2, half = unit % 2, column = lane / 4, pair = lane % 4;
      const Pixel* from = shared.box + (row * 2 * BOX_WIDTH + column * 2) * PITCH + half * 8 + pair * 2;
      transform_unit(from, shared.v[pipe.stage] + half * HALF + (row * COLUMNS + column) * 16 + pair * 4);
    }
    fence_async();
    barrier_arrive(&shared.v_full[pipe.stage]);
    pipe.advance();
  }
}

// The products of a stage.
__device__ __forceinline__ void multiply(float (&acc)[HELD][SUMS], const unsigned (&u)[2][4],
                                         const unsigned char* v) {
  const unsigned long long first = matrix_descriptor(v, HALF, 128);
  if constexpr (PARTS == 1) {
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < HELD; ++s)
      wgmma<TILES>(acc[s], u[0], descriptor_offset(first, s * PART), true);
    wgmma_commit();
    wgmma_wait<1>();  // the stage before is done
  } else {
    float sum[2][SUMS];
#pragma unroll
    for (int s = 0; s <= HELD; ++s) {
      if (s < HELD) {
        const unsigned long long high = descriptor_offset(first, s * 2 * PART);
        const unsigned long long low = descriptor_offset(high, PART);
        wgmma_pin(sum[s % 2]);
        wgmma_fence();
        wgmma<TILES>(sum[s % 2], u[0], low, false);
        wgmma<TILES>(sum[s % 2], u[1], high, true);
        wgmma<TILES>(sum[s % 2], u[0], high, true);
        wgmma_commit();
      }
      if (s > 0) {
        if (s < HELD)
          wgmma_wait<1>();
        else
          wgmma_wait<0>();
        wgmma_pin(sum[(s - 1) % 2]);
#pragma unroll
        for (int j = 0; j < SUMS; ++j) acc[s - 1][j] += sum[(s - 1) % 2][j];
      }
    }
  }
}

__device__ __forceinline__ void consume(const LoopParams& p, LoopShared& shared) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  unsigned u[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) u[i / 4][i % 4] = (unsigned)p.seed + i;
  float acc[HELD][SUMS];
#pragma unroll
  for (int s = 0; s < HELD; ++s)
#pragma unroll
    for (int j = 0; j < SUMS; ++j) acc[s][j] = 0.0f;
  Pipe<STAGES> pipe;
#pragma unroll 1
  for (int turn = 0; turn < p.turns; ++turn) {
    if (TRANSFORMS) barrier_wait(&shared.v_full[pipe.stage], pipe.phase);
    multiply(acc, u, shared.v[pipe.stage] + group * HELD * PARTS * PART);
    const int done = PARTS == 2 ? pipe.stage : (pipe.stage + STAGES - 1) % STAGES;
    if (TRANSFORMS && (PARTS == 2 || turn > 0)) barrier_arrive(&shared.v_empty[done]);
    pipe.advance();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int s = 0; s < HELD; ++s) wgmma_pin(acc[s]);
  if (p.out == nullptr) return;
#pragma unroll
  for (int s = 0; s < HELD; ++s)
#pragma unroll
    for (int j = 0; j < SUMS; ++j) p.out[(s * SUMS + j) * CONSUMERS + threadIdx.x] = acc[s][j];
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + PRODUCERS, 1)
    fused_wgmma_loop(const __grid_constant__ LoopParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  LoopShared& shared = *reinterpret_cast<LoopShared*>(memory);
  for (int i = threadIdx.x; i < STAGES * V_SIZE / 4; i += blockDim.x)
    reinterpret_cast<unsigned*>(shared.v)[i] = 0;
  for (int i = threadIdx.x; i < BOX_HEIGHT * BOX_WIDTH * PITCH; i += blockDim.x) shared.box[i] = 0;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.v_full[s], PRODUCERS);
      barrier_init(&shared.v_empty[s], CONSUMERS);
    }
    barriers_ready();
  }
  fence_async();
  __syncthreads();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    if (TRANSFORMS) produce(p, shared);
  }
}
