// The producers of a Γ kernel: input tiles through BT into V, and the copies of U.
#pragma once

#include "block.cuh"
#include "tile_scheduler.cuh"

// A block's share of a summation, cut into so many sums that none has more than PARTIAL stages of V,
// where that is not 0. Each is transformed, and added to y.
struct PartialSums {
  int begin, stages, count = 1;
  __device__ __forceinline__ PartialSums(const Steps& steps, int sharers)
      : begin(steps.begin), stages(steps.end - steps.begin) {
    if constexpr (PARTIAL > 0) count = (steps.all + PARTIAL * sharers - 1) / (PARTIAL * sharers);
  }
  // Where a sum begins.
  __device__ __forceinline__ int at(int sum) const {
    return begin + (int)((long long)stages * sum / count);
  }
};

constexpr unsigned JOINED = 1u << ALPHA;  // OVERLAP: of a tile's mask, beside its inputs' bits

// Meets the threads that store(), once a pass: what all others do meanwhile.
__device__ __forceinline__ void meet(int sharers) {
  if constexpr (SPLIT_K > 1) {
    if (sharers > 1) {
      cluster_sync();
      cluster_sync();
    }
  }
}

// Starts the bulk copy of a stage of U, and goes on to the next.
__device__ __forceinline__ void copy_stage(float* to, const float*& u, unsigned long long* full) {
  barrier_arrive_expect(full, U_SIZE * 4);
  bulk_copy(to, u, U_SIZE * 4, full);
  u += U_SIZE;
}

// CPT channels of one pixel, of which ``left`` are there, 1 or more, or zeros.
__device__ __forceinline__ void load_channels(float (&d)[CPT], const float* x, bool inside,
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
    for (int c = 0; c < CPT; ++c) d[c] = inside && (c == 0 || c < left) ? __ldg(x + c) : 0.0f;
  }
}

// The tile that is a producer's ``g``-th.
__device__ __forceinline__ int tile_of(int slot, int g) {
  return slot * ABREAST + g % ABREAST + g / ABREAST * (ABREAST * SLOTS);
}

// FUSED: a stage of U, made of the filter itself: BM outputs × KC channels from ``channel`` on of one
// outer tap. Neighbouring lanes have neighbouring outputs, so that they write to different banks. (A
// template, so that only FUSED asks for strides.)
template <class P>
__device__ __forceinline__ void make_filters(const P& p, float* to, int output, int fd, int fh,
                                             int fw, int channel, int thread) {
  const float* w = p.u + fd * p.depth_stride + fh * p.row_stride + fw * R * p.width_stride;
  for (int i = thread; i < BM * LPT; i += PRODUCERS) {
    const int m = i % BM, c = i / BM * CPT, left = p.channels - channel - c;
    const bool inside = output + m < p.out_channels && left > 0;
    const float* from = w + (output + m) * p.m_stride + (channel + c) * p.c_stride;
    float taps[R][CPT];
#pragma unroll
    for (int j = 0; j < R; ++j) {
      if (p.c_stride == 1) {
        load_channels(taps[j], from + j * p.width_stride, inside, left);
      } else {
#pragma unroll
        for (int k = 0; k < CPT; ++k)
          taps[j][k] = inside && k < left ? __ldg(from + k * p.c_stride + j * p.width_stride) : 0.0f;
      }
    }
#pragma unroll
    for (int k = 0; k < CPT; ++k) {
      float tap[R], state[ALPHA];
#pragma unroll
      for (int j = 0; j < R; ++j) tap[j] = taps[j][k];
      transform_filter(tap, state);
#pragma unroll
      for (int s = 0; s < ALPHA; ++s) to[(s * KC + c + k) * BM + m] = state[s];
    }
  }
}

__device__ __forceinline__ void produce(const GammaFfmaParams& p, GammaFfmaShared& shared) {
  const int thread = threadIdx.x - CONSUMERS;
  const int group = thread % LPT, slot = thread / LPT;
  Pipe<V_STAGES> pipe;
  Pipe<U_STAGES> u_pipe;
  bool filtered = false;  // whether U is there, which the launch before this one makes
  for (TileScheduler scheduler(p); scheduler.left(p); scheduler.next(p)) {
    const GammaWorkTile work(p, scheduler.index);
    const Steps steps(p, scheduler.sharers);
    const PartialSums sums(steps, scheduler.sharers);
    [[maybe_unused]] int sum = 0;
    int chunk = steps.begin % p.chunks, tap = steps.begin / p.chunks;
    int fw = tap % p.taps_width, fh = tap / p.taps_width % (p.taps_height / SHARE) * SHARE,
        fd = tap / p.taps_width / (p.taps_height / SHARE);
    const float* u =
        p.u + ((long long)work.block_m * steps.all + steps.begin) * (SHARE * U_SIZE);
    const float* x[GROUPS];
    unsigned inside[GROUPS];
    bool new_tap = true;
    for (int step = steps.begin;; ++step) {
      if constexpr (SPLIT_K > 1) {
        for (; sum < sums.count && sums.at(sum + 1) == step; ++sum)
          for (int pass = 0; pass < PASSES; ++pass) meet(scheduler.sharers);
      }
      if (step == steps.end) break;
      if (new_tap) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
          const int tile = tile_of(slot, g), at = work.column + tile % COLUMNS;
          const Column column(p, at);
          const int d = column.depth + fd - p.pad_depth, w = column.first + fw * R - p.pad_width;
          const int h = work.row + tile / COLUMNS + fh - p.pad_height;
          const bool row = (V_TILES % (ABREAST * SLOTS) == 0 || tile < V_TILES) && at < p.columns &&
                           (unsigned)d < (unsigned)p.depth && (unsigned)h < (unsigned)p.height;
          inside[g] = 0;
#pragma unroll
          for (int i = 0; i < INPUTS; ++i)
            inside[g] |= (unsigned)(row && (unsigned)(w + i) < (unsigned)p.width) << i;
          if constexpr (OVERLAP) {
            // What the tile before it in the same row of outputs has loaded already.
            if (g % 2 && column.first) inside[g] = inside[g] >> (INPUTS - N) << (INPUTS - N) | JOINED;
          }
          x[g] = p.x + column.batch * p.x_batch + d * p.x_depth + h * p.x_row +
                 (long long)w * p.x_pixel + group * CPT;
        }
        new_tap = false;
      }
      const int channel = chunk * KC + group * CPT;
#pragma unroll
      for (int first = 0; first < GROUPS; first += BATCH) {
        float d[BATCH][INPUTS][CPT];
#pragma unroll
        for (int g = first; g < first + BATCH && g < GROUPS; ++g) {
          const unsigned mask = channel < p.channels ? inside[g] : 0;
#pragma unroll
          for (int i = 0; i < INPUTS; ++i)
            load_channels(d[g - first][i], x[g] + chunk * KC + i * p.x_pixel, mask >> i & 1,
                          p.channels - channel);
          if constexpr (OVERLAP) {
            if (g % 2 && inside[g] & JOINED) {
#pragma unroll
              for (int i = 0; i < INPUTS - N; ++i)
#pragma unroll
                for (int c = 0; c < CPT; ++c) d[g - first][i][c] = d[g - first - 1][i + N][c];
            }
          }
        }
        if (first == 0) barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll
        for (int g = first; g < first + BATCH && g < GROUPS; g += ABREAST) {
          const int tile = tile_of(slot, g);
          if (V_TILES % (ABREAST * SLOTS) == 0 || tile < V_TILES) {
            float* v = shared.v[pipe.stage] + group * CPT * V_STRIDE + tile;
#pragma unroll
            for (int c = 0; c < CPT; ++c) {
              float column[INPUTS], state[ABREAST][ALPHA];
#pragma unroll
              for (int k = 0; k < ABREAST; ++k) {
#pragma unroll
                for (int i = 0; i < INPUTS; ++i) column[i] = d[g - first + k][i][c];
                transform_input(column, state[k]);
              }
#pragma unroll
              for (int s = 0; s < ALPHA; ++s) {
                float* to = v + (s * KC + c) * V_STRIDE;
                if constexpr (OVERLAP)
                  *reinterpret_cast<float2*>(to) = make_float2(state[0][s], state[ABREAST - 1][s]);
                else
                  *to = state[0][s];
              }
            }
          }
        }
      }
      barrier_arrive(&shared.v_full[pipe.stage]);
      pipe.advance();
      // The U stages that meet this V stage; the last of them are still to be used when the next V
      // stage is made.
      if (!FUSED && !filtered && (!BULK || thread == ISSUER)) {
        launch_before_done();
        filtered = true;
      }
      if constexpr (FUSED) {
        for (int row = 0; row < SHARE; ++row) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
          make_filters(p, shared.u[u_pipe.stage], work.block_m * BM, fd, fh + row, fw, chunk * KC,
                       thread);
          barrier_arrive(&shared.u_full[u_pipe.stage]);
          u_pipe.advance();
        }
      } else if constexpr (!BULK) {
        for (int row = 0; row < SHARE; ++row) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
#pragma unroll 4
          for (int i = 4 * thread; i < U_SIZE; i += 4 * PRODUCERS)
            copy_async<16>(shared.u[u_pipe.stage] + i, u + i, true);
          copy_async_arrive(&shared.u_full[u_pipe.stage]);
          u += U_SIZE;
          u_pipe.advance();
        }
      } else if (thread == ISSUER) {
        for (int row = 0; row < SHARE; ++row) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
          copy_stage(shared.u[u_pipe.stage], u, &shared.u_full[u_pipe.stage]);
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
  }
}
