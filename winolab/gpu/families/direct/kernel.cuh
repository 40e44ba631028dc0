// Direct forward and backward data of 16 bits on wgmma: x and w are read as they lie in memory.
//
// A block computes a box of at most BN output positions × BM output channels, a work tile; a step
// is 64 channels of a tap. The SPLIT_K of a cluster, which share a box's steps, each add up a part of
// all sums, by way of the stages' memory.
//
// Roles: a producer thread orders the copies of x and w (walk.cuh); two consumer warpgroups multiply
// half of the positions each.
//
// REST, if not 0: of a tap's last 64 channels only so many times 16 are multiplied, as many as
// there are.
//
// Barriers: who arrives → who waits
//   x_full, w_full[stage]     the producer thread, with its copy's bytes → consumers
//   x_empty, w_empty[stage]   a lane of each consumer warp, when the next step's products have begun
//                             → the producer thread
//   cluster, twice            all threads (SPLIT_K): sums are there; sums are read
#pragma once

#include "walk.cuh"
#include "exchanged.cuh"

// Sums of COUNT times eight channels, from the FIRST on, as pairs; or rounded, and as vectors of eight
// where there are four times eight.
template <int FIRST, int COUNT>
__device__ __forceinline__ void store(const DirectParams& p, const DirectWorkTile& work,
                                      const float (&acc)[HELD][BM / 2], int first, int lane) {
#pragma unroll
  for (int i = 0; i < HELD; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Output* const y = position(p, work, first + i * 64 + r * 8 + lane / 4);
      if constexpr (WIDE_OUT) {
#pragma unroll
        for (int j = FIRST; j < FIRST + COUNT; ++j)
#ifdef EPILOGUE
          if (y && work.channel + j * 8 < p.out_channels) {
            const int channel = j * 8 + lane % 4 * 2;
            float v[2] = {acc[i][4 * j + 2 * r], acc[i][4 * j + 2 * r + 1]};
            finish_channels<2, true>(p.epilogue, v, y + channel, p.y, work.channel + channel);
            *reinterpret_cast<float2*>(y + channel) = make_float2(v[0], v[1]);
          }
#else
          if (y && work.channel + j * 8 < p.out_channels)
            *reinterpret_cast<float2*>(y + j * 8 + lane % 4 * 2) =
                make_float2(acc[i][4 * j + 2 * r], acc[i][4 * j + 2 * r + 1]);
#endif
        continue;
      }
      const auto rounded = [&](int j) {
        return pack<BF16>(acc[i][4 * j + 2 * r], acc[i][4 * j + 2 * r + 1]);
      };
      const auto there = [&](int channel) { return y && work.channel + channel < p.out_channels; };
      if constexpr (COUNT % 4 == 0) {
#pragma unroll
        for (int j = FIRST; j < FIRST + COUNT; j += 4) {
          unsigned v[4] = {rounded(j), rounded(j + 1), rounded(j + 2), rounded(j + 3)};
          const uint4 eight = exchanged(v, lane);
          const int channel = (j + lane % 4) * 8;
#ifdef EPILOGUE
          if (there(channel)) {
            unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
            finish_pairs(p.epilogue, pairs, y + channel, p.y, work.channel + channel);
            *reinterpret_cast<uint4*>(y + channel) =
                make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
          }
#else
          if (there(channel)) *reinterpret_cast<uint4*>(y + channel) = eight;
#endif
        }
      } else {
#pragma unroll
        for (int j = FIRST; j < FIRST + COUNT; ++j)
#ifdef EPILOGUE
          if (there(j * 8)) {
            const int channel = j * 8 + lane % 4 * 2;
            unsigned pair[1] = {rounded(j)};
            finish_pairs(p.epilogue, pair, y + channel, p.y, work.channel + channel);
            *reinterpret_cast<unsigned*>(y + channel) = pair[0];
          }
#else
          if (there(j * 8)) *reinterpret_cast<unsigned*>(y + j * 8 + lane % 4 * 2) = rounded(j);
#endif
      }
    }
}

// A cluster's blocks each finish a part of the channels: what others finish a block leaves in the
// stages' memory, each thread for the one of its number there.
template <int RANK>
__device__ __forceinline__ void finish(const DirectParams& p, const DirectWorkTile& work, float4* sums,
                                       float (&acc)[HELD][BM / 2], int first, int lane) {
  constexpr int COUNT = BM / 8 / SPLIT_K;
  const auto at = [](int rank, int i, int j) {
    return ((rank * HELD + i) * COUNT + j) * CONSUMERS + (int)threadIdx.x;
  };
  consumers_sync<CONSUMERS>();  // nobody multiplies any more
#pragma unroll
  for (int rank = 0; rank < SPLIT_K; ++rank)
#pragma unroll
    for (int i = 0; i < HELD; ++i)
#pragma unroll
      for (int j = 0; j < COUNT; ++j) {
        const float* from = &acc[i][4 * (rank * COUNT + j)];
        if (rank != RANK) sums[at(rank, i, j)] = make_float4(from[0], from[1], from[2], from[3]);
      }
  cluster_sync();
#pragma unroll
  for (int other = 0; other < SPLIT_K; ++other) {
    if (other == RANK) continue;
    const float4* theirs = cluster_pointer(sums, other);
#pragma unroll
    for (int i = 0; i < HELD; ++i)
#pragma unroll
      for (int j = 0; j < COUNT; ++j) {
        const float4 more = theirs[at(RANK, i, j)];
        float* const sum = &acc[i][4 * (RANK * COUNT + j)];
        sum[0] = __fadd_rn(sum[0], more.x), sum[1] = __fadd_rn(sum[1], more.y);
        sum[2] = __fadd_rn(sum[2], more.z), sum[3] = __fadd_rn(sum[3], more.w);
      }
  }
  store<RANK * COUNT, COUNT>(p, work, acc, first, lane);
  cluster_sync();
}

// Finishes a work tile as the block of that rank does, which is a constant there.
template <int RANK = 0>
__device__ __forceinline__ void finish_as(int rank, const DirectParams& p, const DirectWorkTile& work,
                                          float4* sums, float (&acc)[HELD][BM / 2], int first,
                                          int lane) {
  if (rank == RANK)
    finish<RANK>(p, work, sums, acc, first, lane);
  else if constexpr (RANK + 1 < SPLIT_K)
    finish_as<RANK + 1>(rank, p, work, sums, acc, first, lane);
}

// Products of a step's first DEPTH times 16 channels, asynchronous.
template <int DEPTH>
__device__ __forceinline__ void multiply(float (&acc)[HELD][BM / 2], unsigned long long x,
                                         unsigned long long w) {
#pragma unroll
  for (int i = 0; i < HELD; ++i) wgmma_pin(acc[i]);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < DEPTH; ++k)
#pragma unroll
    for (int i = 0; i < HELD; ++i)
      wgmma<BM, BF16, false, ROTATED>(
          acc[i], descriptor_offset(x, i * 64 * ROW_BYTES + k * 32),
          descriptor_offset(w, k * (ROTATED ? 16 * ROW_BYTES : 32)), true);
  wgmma_commit();
}

__device__ __forceinline__ void consume(const DirectParams& p, DirectShared& shared) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int first = group * (BN / 2) + warp * 16;
  Pipe<X_STAGES> x_pipe;
  Pipe<W_STAGES> w_pipe;
#pragma unroll 1
  for (int index = blockIdx.x / SPLIT_K; index < p.work_tiles; index += gridDim.x / SPLIT_K) {
    const DirectWorkTile work(p, index);
    const int taps = !ALONG ? 1 : STRIDED ? work.taps_width.count : p.taps_width;
    const int next = STRIDED ? p.along_width.step * ROW_BYTES : ROW_BYTES;  // tap's pixels
    float acc[HELD][BM / 2];
#pragma unroll
    for (int i = 0; i < HELD; ++i)
#pragma unroll
      for (int j = 0; j < BM / 2; ++j) acc[i][j] = 0.0f;
    // Released, by a lane of each warp, when the next step's products have begun.
    unsigned long long *x_read = nullptr, *w_read = nullptr;
    const auto release = [&] {
      if (w_read && lane == 0) barrier_arrive(w_read);
      if (x_read && lane == 0) barrier_arrive(x_read);
      x_read = w_read = nullptr;
    };
    int left = p.chunks - work.begin % p.chunks;  // of a tap, with this one
#pragma unroll 1
    for (int step = work.begin; step < work.end; ++step) {
      const bool short_step = left == 1;
      left = short_step ? p.chunks : left - 1;
      barrier_wait(&shared.x_full[x_pipe.stage], x_pipe.phase);
      unsigned long long x = matrix_descriptor(
          shared.x[x_pipe.stage] + group * (BN / 2 * ROW_BYTES), 16, 1024, Swizzle::B128);
#pragma unroll 1
      for (int t = 0; t < taps; ++t) {
        barrier_wait(&shared.w_full[w_pipe.stage], w_pipe.phase);
        const unsigned long long w =
            matrix_descriptor(shared.w[w_pipe.stage], ROTATED ? PLANE : 16, 1024, Swizzle::B128);
        if (REST > 0 && short_step)
          multiply<REST>(acc, x, w);
        else
          multiply<KC / 16>(acc, x, w);
        wgmma_wait<1>();
        release();
        w_read = &shared.w_empty[w_pipe.stage];
        w_pipe.advance();
        x = descriptor_offset(x, next);
      }
      x_read = &shared.x_empty[x_pipe.stage];
      x_pipe.advance();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < HELD; ++i) wgmma_pin(acc[i]);
    release();
    if constexpr (SPLIT_K == 1)
      store<0, BM / 8>(p, work, acc, first, lane);
    else
      finish_as(cluster_rank(), p, work, reinterpret_cast<float4*>(&shared), acc, first, lane);
  }
}

extern "C" __global__ void __cluster_dims__(SPLIT_K, 1, 1) __launch_bounds__(THREADS, 1)
    winolab_direct(const __grid_constant__ DirectParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DirectShared& shared = *reinterpret_cast<DirectShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < X_STAGES; ++s) {
      barrier_init(&shared.x_full[s], 1);
      barrier_init(&shared.x_empty[s], CONSUMERS / 32);
    }
    for (int s = 0; s < W_STAGES; ++s) {
      barrier_init(&shared.w_full[s], 1);
      barrier_init(&shared.w_empty[s], CONSUMERS / 32);
    }
    barriers_ready();
  }
  __syncthreads();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    if (threadIdx.x == CONSUMERS) produce(p, shared);
    if constexpr (SPLIT_K > 1) {
      cluster_sync();
      cluster_sync();
    }
  }
}
