// Forward and backward data of arrays that lie channels-first: a channel of an image is a plane, whose rows
// are read and written where they lie. A thread has ROWS × TW neighbouring outputs of a plane. It walks
// down the rows of x that they meet, AHEAD of them on their way, and multiplies each by all filter rows,
// or, of more than CHUNK, by CHUNK, and reads them again for each CHUNK.
// Neighbouring threads have neighbouring columns, then rows, then planes.
//
// ROTATED: backward data of unit stride, as a correlation with taps backwards.
#pragma once

#include "plane_rows.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

struct DepthwisePlanesParams {
  const Element* x;
  const Element* w;
  Out* y;
  long long x_batch, x_channel, x_row;
  long long y_batch, y_channel, y_row;
  long long w_out, w_row, w_tap;
  long long of_strips, of_segments, of_channels;  // reciprocals, as quotient() takes them
  int strips_bits, segments_bits, channels_bits;
  int height, width, out_height, out_width;
  int strips, segments, channels;  // of a plane, and y's
  int first_row, first_column;     // of x, of the first thread's window; columns begin with a vector
  int work_tiles;                  // threads' worths of outputs
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr bool DATA = ROTATED || GATHER;

template <int N>
__device__ __forceinline__ void store_neighbours(Out* to, const float* sum) {
  constexpr int COUNT = OUTPUT ? (N + 1) / 2 : N;
  unsigned word[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    word[i] = OUTPUT ? pack<OUTPUT == 2>(sum[i * N / COUNT], sum[(i + 1) * N / COUNT - 1])
                     : __float_as_uint(sum[i]);
  if constexpr (N == 1)
    store_sum(to, sum[0]);
  else if constexpr (COUNT == 1)
    *reinterpret_cast<unsigned*>(to) = word[0];
  else if constexpr (COUNT == 2)
    *reinterpret_cast<uint2*>(to) = make_uint2(word[0], word[1]);
  else
    *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
}

// The outputs of a thread, read in vectors of N elements and stored in those of STORED. DENSE: filters have
// no gaps.
template <int N, int STORED, bool DENSE>
__device__ __forceinline__ void compute(const DepthwisePlanesParams& p) {
  const unsigned number = blockIdx.x * THREADS + threadIdx.x;
  if (number >= p.work_tiles) return;
  const unsigned rows = quotient(number, p.of_strips, p.strips_bits);
  const int strip = number - rows * p.strips;
  const unsigned plane = quotient(rows, p.of_segments, p.segments_bits);
  const int segment = rows - plane * p.segments;
  const int image = quotient(plane, p.of_channels, p.channels_bits);
  const int c = plane - image * p.channels;

  const int column = p.first_column + (N > 1 ? 0 : OFFSET) + strip * ALONG.advance();
  const int row = p.first_row + segment * DOWN.advance();
  const long long pitch = p.x_row * SIZE;
  float sum[ROWS][TW];
#pragma unroll
  for (int o = 0; o < ROWS; ++o)
#pragma unroll
    for (int t = 0; t < TW; ++t) sum[o][t] = 0.0f;

#pragma unroll 1
  for (int m = 0; m < (DATA ? MULTIPLIER : 1); ++m) {
    const int of_x = DATA ? c * MULTIPLIER + m : c / MULTIPLIER;
    const char* x = reinterpret_cast<const char*>(p.x + image * p.x_batch + of_x * p.x_channel + column);
    const Element* filter = p.w + (DATA ? of_x : c) * p.w_out;
#pragma unroll 1
    for (int k0 = 0; k0 < KH; k0 += CHUNK) {
      const int top = row + (GATHER ? -(k0 * DH / SH) : k0 * DH);
      const char* from = x + top * pitch;
      PlaneColumns<N, N == 1 ? 0 : OFFSET, WIDTH> read[AHEAD];
#pragma unroll
      for (int r = 0; r < AHEAD; ++r) {
        if (needed(r)) read[r].load(from, (unsigned)(top + r) < (unsigned)p.height, column, p.width);
        from += pitch;
      }
      float w[CHUNK][KW];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k)
#pragma unroll
        for (int kw = 0; kw < KW; ++kw) {
          const int kh = k0 + k, tap = ROTATED ? KW - 1 - kw : kw;
          const bool is = KH % CHUNK == 0 || kh < KH;
          const long long of_row = ROTATED ? KH - 1 - kh : kh;
          const Element* at = filter + (DENSE ? of_row * KW + tap : of_row * p.w_row + tap * p.w_tap);
          if constexpr (INPUT == 0) {
            w[k][kw] = is ? __ldg(at) : 0.0f;
          } else {
            float none;
            unpack<INPUT == 2>(is ? __ldg(at) : 0, w[k][kw], none);
          }
        }
#pragma unroll
      for (int r = 0; r < HEIGHT; ++r) {
        float v[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) v[i] = needed(r) ? read[r % AHEAD].value(i) : 0.0f;
        const int next = r + AHEAD;
        if (next < HEIGHT) {
          if (needed(next))
            read[r % AHEAD].load(from, (unsigned)(top + next) < (unsigned)p.height, column, p.width);
          from += pitch;
        }
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) {
          if (KH % CHUNK != 0 && k0 + k >= KH) continue;
#pragma unroll
          for (int o = 0; o < ROWS; ++o) {
            if (DOWN.met(o, k) != r) continue;
#pragma unroll
            for (int kw = 0; kw < KW; ++kw)
#pragma unroll
              for (int t = 0; t < TW; ++t)
                if (ALONG.met(t, kw) >= 0)
                  sum[o][t] = __fmaf_rn(v[ALONG.met(t, kw)], w[k][kw], sum[o][t]);
          }
        }
      }
    }
  }

  const int left = strip * TW, upper = segment * ROWS;
  Out* y = p.y + image * p.y_batch + c * p.y_channel + upper * p.y_row + left;
#pragma unroll
  for (int o = 0; o < ROWS; ++o) {
#pragma unroll
    for (int t = 0; t < TW; t += STORED) {
      if (upper + o >= p.out_height || left + t >= p.out_width) continue;
#ifdef EPILOGUE
#pragma unroll
      for (int i = 0; i < STORED; ++i)
        sum[o][t + i] = finish_channel(p.epilogue, sum[o][t + i], y + t + i, p.y, c);
#endif
      store_neighbours<STORED>(y + t, sum[o] + t);
    }
    y += p.y_row;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_planes(const __grid_constant__ DepthwisePlanesParams p) {
  compute<V, VS, true>(p);
}

// The same where rows do not begin where vectors do, or filters have gaps.
extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_planes_any(const __grid_constant__ DepthwisePlanesParams p) {
  compute<1, 1, false>(p);
}
