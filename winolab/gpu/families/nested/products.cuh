// The products of nested Winograd: M[state] = V Uᵀ, summed over pieces and channels.
//
// A block computes a box of at most BN tiles × BM output channels of one state, a work tile. Blocks
// are persistent; states vary last, so that U of a state stays in L2. M: [state][block of
// tiles][BN][outputs].
//
// Roles: a producer thread orders a tensor copy of V and a bulk copy of U a stage of KC channels of one
// tap of the depth; two consumer warpgroups multiply 64 tiles each. Products of split FP32: low·high,
// high·low, high·high, summed by the Tensor Core, which truncates, over a stage, then added in FP32
// outside it. Of 16 bits: all by the Tensor Core; a stage is released when the next one's have begun.
//
// Taps of the depth find V that many frames of tiles further on, zeros before the first and behind
// the last frame.
//
// Barriers: who arrives → who waits
//   full[stage]    the producer thread, with the bytes of both copies → consumers
//   empty[stage]   every consumer → the producer thread
#pragma once

#include "mma.cuh"
#include "tensor_map.cuh"
#include "pipe.cuh"
#include "parts.cuh"

using Sum = Either<WIDE_SUMS, float, unsigned short>::type;

struct ProductsParams {
  TensorMap v_map;
  const unsigned char* u;
  void* m;
  int box_width, box_height, box_images, box_bytes;  // of V
  int blocks_width, blocks_height, blocks_n, blocks_m, work_tiles;
  int depth, frame, first;  // taps; tiles from one's to the next's, and to the first one's
  int pieces_height, pieces_width, chunks;
  int short_height, short_width;  // whether the last piece lacks its last tap
};

constexpr int BN = 128, CONSUMERS = 256, THREADS = CONSUMERS + 128;
constexpr int ROW_BYTES = 128;
constexpr int STEPS = ROW_BYTES / PARTS / 32;  // of 16 channels in a stage
constexpr int CONSUMER_REGISTERS = 240, PRODUCER_REGISTERS = 24;

struct NestedShared {
  unsigned char v[STAGES][BN * ROW_BYTES];
  unsigned char u[STAGES][BM * ROW_BYTES];
  unsigned long long full[STAGES], empty[STAGES];
};
static_assert(sizeof(NestedShared) <= SHARED, "as the plan has it");

struct ProductsWorkTile {
  int block_m, block_n, state;
  __device__ __forceinline__ ProductsWorkTile(const ProductsParams& p, int index) {
    block_m = index % p.blocks_m, index /= p.blocks_m;
    block_n = index % p.blocks_n, state = index / p.blocks_n;
  }
};

// Pieces of the filter that a state has products of: at infinity, where G has the last tap alone,
// not of one that lacks it.
struct Pieces {
  int height, width;
  __device__ __forceinline__ Pieces(const ProductsParams& p, int state)
      : height(p.pieces_height - (p.short_height && state / AW == INFINITE_H)),
        width(p.pieces_width - (p.short_width && state % AW == INFINITE_W)) {}
};

__device__ __forceinline__ void produce(const ProductsParams& p, NestedShared& shared) {
  Pipe<STAGES> pipe;
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const ProductsWorkTile work(p, index);
    const Pieces pieces(p, work.state);
    const int width = work.block_n % p.blocks_width * p.box_width;
    const int rest = work.block_n / p.blocks_width;
    const int height = rest % p.blocks_height * p.box_height;
    const int image = rest / p.blocks_height * p.box_images;
    const long long first = ((long long)work.state * p.blocks_m + work.block_m) * p.depth;
    for (int tap = 0; tap < p.depth * pieces.height; ++tap) {
      const int d = tap / pieces.height, h = tap % pieces.height;
      const int place = width + p.first + d * p.frame;
      for (int w = 0; w < pieces.width; ++w) {
        const unsigned char* u =
            p.u + (((first + d) * p.pieces_height + h) * p.pieces_width + w) * p.chunks * (BM * ROW_BYTES);
        for (int c = 0; c < p.chunks; ++c) {
          unsigned long long* full = &shared.full[pipe.stage];
          barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
          barrier_arrive_expect(full, p.box_bytes + BM * ROW_BYTES);
          box_copy(shared.v[pipe.stage], p.v_map, c * (ROW_BYTES / 2), place + w * SHIFT_W,
                   height + h * SHIFT_H, image, work.state, full);
          bulk_copy(reinterpret_cast<float*>(shared.u[pipe.stage]),
                    reinterpret_cast<const float*>(u), BM * ROW_BYTES, full);
          u += BM * ROW_BYTES;
          pipe.advance();
        }
      }
    }
  }
}

// A stage's products in WIDTH columns from FIRST on, added to the accumulators.
template <int FIRST, int WIDTH>
__device__ __forceinline__ void multiply(float (&acc)[BM / 2], const unsigned char* v,
                                         const unsigned char* u) {
  if constexpr (WIDTH > 0) {
    const unsigned long long high_v = matrix_descriptor(v, 16, 1024, Swizzle::B128);
    const unsigned long long high_u =
        matrix_descriptor(u + FIRST * ROW_BYTES, 16, 1024, Swizzle::B128);
    const unsigned long long low_v = descriptor_offset(high_v, ROW_BYTES / 2);
    const unsigned long long low_u = descriptor_offset(high_u, ROW_BYTES / 2);
    float sum[WIDTH / 2];
    wgmma_pin(sum);
    wgmma_fence();
    wgmma<WIDTH>(sum, low_v, high_u, false);
    wgmma<WIDTH>(sum, descriptor_offset(low_v, 32), descriptor_offset(high_u, 32), true);
    wgmma<WIDTH>(sum, high_v, low_u, true);
    wgmma<WIDTH>(sum, descriptor_offset(high_v, 32), descriptor_offset(low_u, 32), true);
    wgmma<WIDTH>(sum, high_v, high_u, true);
    wgmma<WIDTH>(sum, descriptor_offset(high_v, 32), descriptor_offset(high_u, 32), true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(sum);
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i)
      acc[FIRST / 2 + i] = __fadd_rn(acc[FIRST / 2 + i], sum[i]);
  }
}

// The products of ``COUNT`` times 16 channels of a stage of 16 bits, begun.
template <int COUNT>
__device__ __forceinline__ void begin(float (&acc)[BM / 2], const unsigned char* v,
                                      const unsigned char* u, bool first) {
  const unsigned long long of_v = matrix_descriptor(v, 16, 1024, Swizzle::B128);
  const unsigned long long of_u = matrix_descriptor(u, 16, 1024, Swizzle::B128);
  wgmma_pin(acc);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
    wgmma<BM, BF16>(acc, descriptor_offset(of_v, 32 * k), descriptor_offset(of_u, 32 * k),
                    k > 0 || !first);
  wgmma_commit();
}

// A work tile's products, summed.
__device__ __forceinline__ void sum(float (&acc)[BM / 2], const ProductsParams& p, int steps,
                                    NestedShared& shared, Pipe<STAGES>& pipe, int group) {
  if constexpr (PARTS == 2) {
#pragma unroll
    for (int i = 0; i < BM / 2; ++i) acc[i] = 0.0f;
  }
  int chunk = 0, before = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    const unsigned char* v = shared.v[pipe.stage] + group * (64 * ROW_BYTES);
    const unsigned char* u = shared.u[pipe.stage];
    if constexpr (PARTS == 2) {
      multiply<0, WIDTH_0>(acc, v, u);
      multiply<WIDTH_0, WIDTH_1>(acc, v, u);
      barrier_arrive(&shared.empty[pipe.stage]);
    } else {
      chunk = chunk == p.chunks - 1 ? 0 : chunk + 1;
      if (REST < STEPS && chunk == 0)
        begin<REST>(acc, v, u, step == 0);
      else
        begin<STEPS>(acc, v, u, step == 0);
      if (step > 0) {
        wgmma_wait<1>();
        barrier_arrive(&shared.empty[before]);
      }
      before = pipe.stage;
    }
    pipe.advance();
  }
  if constexpr (PARTS == 1) {
    wgmma_wait<0>();
    wgmma_pin(acc);
    barrier_arrive(&shared.empty[before]);
  }
}

__device__ __forceinline__ void store_sums(float* m, float first, float second) {
  *reinterpret_cast<float2*>(m) = make_float2(first, second);
}
__device__ __forceinline__ void store_sums(unsigned short* m, float first, float second) {
  *reinterpret_cast<unsigned*>(m) = pack<BF16>(first, second);
}

__device__ __forceinline__ void consume(const ProductsParams& p, NestedShared& shared) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int pitch = p.blocks_m * BM;
  Pipe<STAGES> pipe;
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const ProductsWorkTile work(p, index);
    const Pieces pieces(p, work.state);
    float acc[BM / 2];
    sum(acc, p, p.depth * pieces.height * pieces.width * p.chunks, shared, pipe, group);
    const long long row = ((long long)work.state * p.blocks_n + work.block_n) * BN + group * 64 +
                          warp * 16 + lane / 4;
    Sum* m = static_cast<Sum*>(p.m) + row * pitch + work.block_m * BM + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < BM / 2; i += 2)
      store_sums(m + i / 2 % 2 * 8 * (long long)pitch + i / 4 * 8, acc[i], acc[i + 1]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_nested_products(const __grid_constant__ ProductsParams p) {
  next_launch_may_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  NestedShared& shared = *reinterpret_cast<NestedShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], 1);
      barrier_init(&shared.empty[s], CONSUMERS);
    }
    barriers_ready();
  }
  __syncthreads();
  launch_before_done();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    if (threadIdx.x == CONSUMERS) produce(p, shared);
  }
}
