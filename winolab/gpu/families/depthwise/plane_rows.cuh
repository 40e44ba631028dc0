// Rows of planes, channels of arrays that lie channels-first, and which of them a thread's outputs meet.
// GATHER: backward data of strides, dy in x's place.
#pragma once

#include "elements.cuh"

// What a thread's outputs meet along a dimension.
struct PlaneWindow {
  int outputs, taps, stride, dilation;
  int rest;  // GATHER: padding beyond whole strides

  // Places before that of output 0 at tap 0, of GATHER.
  __device__ constexpr int before() const {
    const int reach = (taps - 1) * dilation - rest;
    return reach > 0 ? (reach + stride - 1) / stride : 0;
  }
  // The place that output o meets at tap k; -1 where it meets none.
  __device__ constexpr int met(int o, int k) const {
    if (!GATHER) return o * stride + k * dilation;
    const int from = o + rest - k * dilation + before() * stride;
    return from % stride == 0 ? from / stride : -1;
  }
  // How many places there are.
  __device__ constexpr int size() const {
    return GATHER ? (outputs - 1 + rest) / stride + before() + 1
                  : (outputs - 1) * stride + (taps - 1) * dilation + 1;
  }
  // Places from a thread to the next.
  __device__ constexpr int advance() const { return GATHER ? outputs / stride : outputs * stride; }
};

constexpr PlaneWindow DOWN = {ROWS, CHUNK, SH, DH, REST_ROW}, ALONG = {TW, KW, SW, DW, REST_COLUMN};
constexpr int HEIGHT = DOWN.size(), WIDTH = ALONG.size();
constexpr int SIZE = sizeof(Element), IN_WORD = 4 / SIZE;

// Whether some output meets a row of the window.
__device__ __forceinline__ bool needed(int row) {
  bool is = false;
#pragma unroll
  for (int o = 0; o < ROWS; ++o)
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) is = is || DOWN.met(o, k) == row;
  return is;
}

// Elements of the smallest aligned part of a vector of n that has those from ``begin`` to ``end``.
__device__ constexpr int part_size(int n, int begin, int end) {
  int size = 1;
  while (size < n && begin / size * size + size < end) size *= 2;
  return size;
}

// COUNT columns of a row as they lie, read in vectors of N elements, of which FIRST lie before them.
template <int N, int FIRST, int COUNT>
struct PlaneColumns {
  static constexpr int VECTORS = (FIRST + COUNT + N - 1) / N;
  static constexpr int WORDS = (VECTORS * N + IN_WORD - 1) / IN_WORD;
  unsigned word[WORDS];

  // ``from``: the first vector, at ``column`` of ``width``; ``there``: whether there is such a row.
  __device__ __forceinline__ void load(const char* from, bool there, int column, int width) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int begin = max(0, FIRST - v * N), end = min(N, FIRST + COUNT - v * N);
      const int size = part_size(N, begin, end), first = v * N + begin / size * size;
      const bool is = there && (unsigned)(column + v * N) < (unsigned)width;
      const char* at = from + first * SIZE;
      unsigned* to = word + first / IN_WORD;
      if (size * SIZE == 16) {
        uint4 read = make_uint4(0, 0, 0, 0);
        if (is) read = __ldg(reinterpret_cast<const uint4*>(at));
        to[0] = read.x, to[1] = read.y, to[2] = read.z, to[3] = read.w;
      } else if (size * SIZE == 8) {
        uint2 read = make_uint2(0, 0);
        if (is) read = __ldg(reinterpret_cast<const uint2*>(at));
        to[0] = read.x, to[1] = read.y;
      } else if (size * SIZE == 4) {
        unsigned read = 0;
        if (is) read = __ldg(reinterpret_cast<const unsigned*>(at));
        to[0] = read;
      } else {
        unsigned read = 0;
        if (is) read = __ldg(reinterpret_cast<const unsigned short*>(at));
        if (first % 2 == 0)
          to[0] = read;
        else
          to[0] = N > 1 ? read << 16 : to[0] | read << 16;
      }
    }
  }

  // The ``i``-th of the columns.
  __device__ __forceinline__ float value(int i) const {
    const int at = FIRST + i;
    if constexpr (INPUT == 0) {
      return __uint_as_float(word[at]);
    } else {
      float even, odd;
      unpack<INPUT == 2>(word[at / 2], even, odd);
      return at % 2 ? odd : even;
    }
  }
};

__device__ __forceinline__ int quotient(unsigned n, long long reciprocal, int bits) {
  return (int)((n * (unsigned long long)reciprocal) >> bits);
}
