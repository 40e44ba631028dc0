// COLS columns of a row of x in registers, zeros where x has none.
#pragma once

#include "arrays.cuh"

template <int COLS>
struct InputRow {
  const Element* x;  // of the image, at the first column
  int column, step;  // the first, and from one to the next
  int pitch;         // elements from one to the next
  bool inside;       // whether all are
  bool there;        // whether x has the row
  RawChannels raw[COLS];

  __device__ __forceinline__ InputRow(const DepthwiseParams& p, const Element* image, int pixel,
                                 int first, int every, int width)
      : x(image + (long long)first * pixel), column(first), step(every), pitch(every * pixel),
        inside(first >= 0 && first + every * (COLS - 1) < width), there(false) {}

  __device__ __forceinline__ void fetch(bool exists, long long offset, int width) {
    there = exists;
    const Element* from = x + offset;
    if (there && inside) {
#pragma unroll
      for (int k = 0; k < COLS; ++k) raw[k] = load(from + (long long)k * pitch);
    } else {
#pragma unroll
      for (int k = 0; k < COLS; ++k) {
        const int at = column + k * step;
        clear(raw[k]);
        if (there && at >= 0 && at < width) raw[k] = load(from + (long long)k * pitch);
      }
    }
  }
};
