// Fused Ωα(n, r) on mma.sync, filter gradients of FP16 and BF16 (WinRS, sections 4 and 5):
// dw = AT Σ (BT x ⊙ G dy) over units, transformed inside the block.
//
// A unit is R columns of one row of dy and the ALPHA columns of x that N taps meet there. A block
// computes BO output × BI input channels of N taps of one filter row, over one segment's units, a
// work tile. Blocks are persistent: producers run ahead into the next work tile while consumers
// finish the last.
//
// Roles, by warp:
//   consumers   products of KC units out of shared memory, each warp one part of the states, then AT
//   producers   load columns of x and dy, apply BT and G, round and write U and V
//
// Rows of U and V are channels of one unit and state, PAD values apart: 8 (128 bits) keep the eight
// rows of a matrix that ldmatrix reads in different banks, 0 is there to be compared with.
//
// Barriers: who arrives → who waits
//   full[stage]    every producer → consumers
//   empty[stage]   every consumer → producers
//   named 1, 2     consumers, twice a pass of the epilogue; producers, when units are described
#pragma once

#include "elements.cuh"
#include "gradient_scheduler.cuh"
#include "mma_sums.cuh"
#include "pipe.cuh"
#include "pipeline.cuh"
#include PRODUCE_FILE
#include "split_k.cuh"

constexpr int STATES = ALPHA > WARPS ? ALPHA / WARPS : 1;   // of a consumer warp
constexpr int SHARERS = ALPHA < WARPS ? WARPS / ALPHA : 1;  // warps of a state
constexpr int WO = BO / SHARERS;                            // output channels of a warp
constexpr int MS = WO / 16, NS = BI / 8;                    // products of a warp's instructions
static_assert(WO % 16 == 0 && BI % 16 == 0 && KC % 16 == 0, "tile shape");

// Starts as mma.cuh's load_matrices wants it: 16 units × 16 channels from ``rows`` on, transposed.
// CHANNELS_FIRST: the second matrix has the next channels, else the next units.
template <bool CHANNELS_FIRST>
__device__ __forceinline__ void load_fragment(unsigned (&fragment)[4], const unsigned short* rows,
                                              int pitch) {
  const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
  const int unit = lane % 8 + 8 * (CHANNELS_FIRST ? high : low);
  load_matrices<true>(fragment, rows + unit * pitch + 8 * (CHANNELS_FIRST ? low : high));
}

// What a stage adds to a warp's sums.
__device__ __forceinline__ void multiply(const unsigned short* u, const unsigned short* v,
                                         Sums (&acc)[STATES][MS][NS]) {
#pragma unroll
  for (int s = 0; s < STATES; ++s)
#pragma unroll
    for (int k = 0; k < KC; k += 16) {
      const unsigned short* x = u + (s * KC + k) * ROW_I;
      const unsigned short* dy = v + (s * KC + k) * ROW_O;
      unsigned a[MS][4];
#pragma unroll
      for (int i = 0; i < MS; ++i) load_fragment<true>(a[i], dy + 16 * i, ROW_O);
#pragma unroll
      for (int j = 0; j < NS; j += 2) {
        unsigned b[4];
        load_fragment<false>(b, x + 8 * j, ROW_I);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const unsigned pair[2] = {b[2 * c], b[2 * c + 1]};
#pragma unroll
          for (int i = 0; i < MS; ++i) add_products(acc[s][i][j + c], a[i], pair);
        }
      }
    }
}

__device__ __forceinline__ void put(float* to, float y) { *to = y; }
__device__ __forceinline__ void put(unsigned short* to, float y) {
  *to = (unsigned short)pack<OUTPUT == 2>(y, 0.0f);
}
__device__ __forceinline__ void put_pair(float* to, float even, float odd) {
  *reinterpret_cast<float2*>(to) = make_float2(even, odd);
}
__device__ __forceinline__ void put_pair(unsigned short* to, float even, float odd) {
  *reinterpret_cast<unsigned*>(to) = pack<OUTPUT == 2>(even, odd);
}

// Where a work tile's outputs go: dw, or its segment's bucket.
template <class T>
struct Target {
  T* first;
  long long by_out, by_tap, by_in;
  int outs, ins, taps;  // of them there are
  __device__ __forceinline__ void store(int out, int in, const float (&even)[N],
                                        const float (&odd)[N]) const {
    if (out >= outs || in >= ins) return;
    T* at = first + out * by_out + in * by_in;
#pragma unroll
    for (int o = 0; o < N; ++o, at += by_tap)
      if (o < taps) {
        if constexpr (DWVEC == 2) {
          put_pair(at, even[o], odd[o]);
        } else {
          put(at, even[o]);
          if (in + 1 < ins) put(at + by_in, odd[o]);
        }
      }
  }
};

// The output transform of eight rows of each m16 of a warp, staged by state.
template <class T>
__device__ __forceinline__ void finish(WgradMmaShared& shared, const Target<T>& target,
                                       const Sums (&acc)[STATES][MS][NS], int state0, int sharer) {
  const int lane = threadIdx.x % 32;
  float* staged = shared.out + ((state0 * SHARERS + sharer) * 8 + lane / 4) * ROW_OUT + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < MS; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      consumers_sync<CONSUMERS>();
#pragma unroll
      for (int s = 0; s < STATES; ++s)
#pragma unroll
        for (int j = 0; j < NS; ++j)
          *reinterpret_cast<float2*>(staged + s * SHARERS * 8 * ROW_OUT + 8 * j) =
              pair_of(acc[s][i][j], r);
      consumers_sync<CONSUMERS>();
#pragma unroll 1
      for (int e = threadIdx.x; e < SHARERS * 8 * BI / 2; e += CONSUMERS) {
        const int in = e % (BI / 2) * 2, row = e / (BI / 2);
        const float* from = shared.out + row * ROW_OUT + in;
        float even[ALPHA], odd[ALPHA], y_even[N], y_odd[N];
#pragma unroll
        for (int s = 0; s < ALPHA; ++s) {
          const float2 pair = *reinterpret_cast<const float2*>(from + s * SHARERS * 8 * ROW_OUT);
          even[s] = pair.x, odd[s] = pair.y;
        }
        transform_output(even, y_even);
        transform_output(odd, y_odd);
        target.store(row / 8 * WO + 16 * i + 8 * r + row % 8, in, y_even, y_odd);
      }
    }
}

// Whether there is one segment of all kernels. (A template, so that only BOXES asks for theirs.)
template <class P>
__device__ __forceinline__ bool alone(const P& p) {
  if constexpr (BOXES) return p.cuts_depth * p.cuts_row * p.buckets_box == 1;
  return p.segments == 1;
}

// Sums of one segment alone, and with FIRST those of the first, are dw's; others are buckets'.
__device__ __forceinline__ void finish(const Params& p, WgradMmaShared& shared,
                                       const WorkTile& work,
                                       const Sums (&acc)[STATES][MS][NS], int state0, int sharer) {
  const int row_size = p.taps_width * p.channels, outer = p.taps_depth * p.taps_height;
  const int taps = min(N, p.taps_width - work.tap_width);
  const int outs = p.out_channels - work.out, ins = p.channels - work.in;
  const long long out = work.group * p.out_channels + work.out;
  if (alone(p) || (FIRST && work.segment == 0)) {
    Out* dw = p.dw + out * p.dw_out + work.tap_depth * p.dw_depth + work.tap_height * p.dw_row +
              work.tap_width * p.dw_tap + work.in * p.dw_in;
    finish(shared, Target<Out>{dw, p.dw_out, p.dw_tap, p.dw_in, outs, ins, taps}, acc, state0, sharer);
  } else {
    const long long size = (long long)outer * row_size;  // of an output channel
    float* bucket = p.buckets + (work.segment - FIRST) * (size * p.out_channels * p.groups) +
                    out * size + (work.tap_depth * p.taps_height + work.tap_height) * row_size +
                    work.tap_width * p.channels + work.in;
    finish(shared, Target<float>{bucket, size, p.channels, 1, outs, ins, taps}, acc, state0, sharer);
  }
}

__device__ __forceinline__ void consume(const Params& p, WgradMmaShared& shared) {
  const int warp = threadIdx.x / 32, state0 = warp / SHARERS * STATES, sharer = warp % SHARERS;
  Pipe<STAGES> pipe;
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const WorkTile work(p, index);
    Sums acc[STATES][MS][NS] = {};
#pragma unroll 1
    for (int step = work.steps(); step > 0; --step) {
      barrier_wait(&shared.full[pipe.stage], pipe.phase);
      multiply(shared.u[pipe.stage] + state0 * KC * ROW_I,
               shared.v[pipe.stage] + state0 * KC * ROW_O + sharer * WO, acc);
      barrier_arrive(&shared.empty[pipe.stage]);
      pipe.advance();
    }
    finish(p, shared, work, acc, state0, sharer);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_wgrad_mma(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) unsigned char memory[];
  WgradMmaShared& shared = *reinterpret_cast<WgradMmaShared*>(memory);
  if (threadIdx.x == 0)
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], CONSUMERS);
    }
  __syncthreads();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared);
  }
}
