// The matrices that an implicit GEMM multiplies.
//
// "Patches" are x as a matrix: a row for every position, a column for every tap and channel of x, taps
// first, so that few channels leave no gaps. What they meet is the filter, or of filter gradients dy:
//
//   ROLE          M (rows)         N (columns)         K (depth)           in shared memory
//   0 forward     positions        output channels     taps × channels     patches [M][K], w [N][K]
//   1 data        positions of dx  channels of x       taps × channels     patches [M][K], w [K][N]
//   2 gradient    output channels  taps × channels     positions of dy     dy [K][M], patches [K][N]
//
// SEGMENTED: the sum of forward or backward data is cut into segments, as a gradient's may be.
// A block has ``merged`` groups side by side: the filter is zero, and of gradients nothing is stored,
// where a channel meets another group's. Backward data of stride s is s phases a dimension (axes.cuh).
#pragma once

#include "pipeline.cuh"
#include "elements.cuh"
#include "axes.cuh"
#include "fallback.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

#include "quotient.cuh"
// One that the device alone knows.
__device__ __forceinline__ int divide(int by, int n, int& rest) {
  rest = n % by;
  return n / by;
}

struct ImplicitParams {
  const Element* x;  // of backward data dy
  const Element* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it; of gradients dy
  Out* y;            // y, dx or dw
  float* buckets;    // of segments of the sum, [segment][output channel][taps][channel] of a gradient,
                     // [segment][position][output channel] of others; or null
  long long x_batch, x_depth, x_row, y_batch, y_depth, y_row;  // strides in elements; dy's of gradients
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;  // of the filter, or of dw
  long long group_stride;  // of the filter
  int x_pixel, y_pixel;
  int batch, depth, height, width, out_depth, out_height, out_width;
  int channels, out_channels, groups, merged;  // of a group of x and of the filter's other side
  int patch_channels;  // of a tap of patches: of all groups of a block, or filled up (fill.cuh)
  int channels_log, out_log;                   // of several merged groups: powers of two
  int blocks_rows, blocks_columns, steps, segments;  // steps of a segment
  int pad_depth, pad_height, pad_width, taps_depth, taps_height, taps_width;
  int x_vectors, w_vectors, y_vector;  // whether vectors are aligned; channels of a store
  Quotient by_columns, by_rows, by_groups;                // blocks, the last ones of groups
  Quotient by_channels, by_widths, by_heights, by_depths;  // of patches, and the filter's taps
  Quotient of_width, of_height, of_depth;                 // outputs of a phase
  DirectAxis along_depth, along_height, along_width;
  const int* wanted;  // flags (fallback.cuh) without which an FP32 gradient is not computed; or null
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int THREADS = 32 * WARP_ROWS * WARP_COLUMNS + PRODUCERS;
constexpr int SIZE = sizeof(Element), VECTOR = 16 / SIZE;
constexpr bool W_BY_DEPTH = GRADIENT || ROTATED;  // a row of w's stage is a step of the sum

// A position: where its window begins in x, and where it lies in y; or nowhere.
struct __align__(16) WindowPlace {
  long long x, y;
  int depth, height, width, there;
};

// A row of w of backward data: an output channel of a tap.
struct __align__(16) FilterRow {
  long long at;
  int channel, there;
};

// A number that counts up by steps, as digits: of width, height and depth, and what is beyond.
struct Digits {
  int width, height, depth, beyond;
  __device__ __forceinline__ Digits() {}
  template <class Divisor>
  __device__ __forceinline__ Digits(int number, const Divisor& w, const Divisor& h, const Divisor& d) {
    beyond = divide(d, divide(h, divide(w, number, width), height), depth);
  }
  __device__ __forceinline__ void add(const Digits& step, int more, int w, int h, int d) {
    width += step.width + more;
    more = width >= w, width -= more ? w : 0;
    height += step.height + more;
    more = height >= h, height -= more ? h : 0;
    depth += step.depth + more;
    more = depth >= d, depth -= more ? d : 0;
    beyond += step.beyond + more;
  }
};

// What a block computes.
struct ImplicitWork {
  int row, column, group;  // the first ones
  int segment, begin, end;  // of the sum; steps
  int channels, columns, taps;         // of all its groups; taps that meet its outputs
  Taps depth, height, width;
  __device__ __forceinline__ ImplicitWork(const ImplicitParams& p) {
    int index = divide(p.by_columns, blockIdx.x, column);
    index = divide(p.by_groups, divide(p.by_rows, index, row), group);
    column *= BLOCK_COLUMNS, row *= BLOCK_ROWS, group *= p.merged;
    channels = p.patch_channels, columns = p.merged * p.out_channels;
    width = Taps(p.along_width, GRADIENT ? 0 : index % p.along_width.phases, p.taps_width, p.pad_width);
    if (!GRADIENT) index /= p.along_width.phases;
    height =
        Taps(p.along_height, GRADIENT ? 0 : index % p.along_height.phases, p.taps_height, p.pad_height);
    if (!GRADIENT) index /= p.along_height.phases;
    depth = Taps(p.along_depth, GRADIENT || SEGMENTED ? 0 : index, p.taps_depth, p.pad_depth);
    taps = depth.count * height.count * width.count;
    begin = segment = 0, end = (int)(((long long)taps * channels + DEPTH - 1) / DEPTH);
    if (GRADIENT) {
      segment = index, begin = index * p.steps;
      end = min(begin + p.steps, (positions(p) + DEPTH - 1) / DEPTH);
    } else if (SEGMENTED) {  // of one phase
      segment = index, begin = index * p.steps;
      end = min(begin + p.steps, end);
    }
  }
  // Taps as digits, of which there is one at least.
  __device__ __forceinline__ int widths() const { return max(width.count, 1); }
  __device__ __forceinline__ int heights() const { return max(height.count, 1); }
  __device__ __forceinline__ int depths() const { return max(depth.count, 1); }
  __device__ __forceinline__ Digits digits(const ImplicitParams& p, int tap) const {
    if constexpr (ROTATED)
      return Digits(tap, widths(), heights(), depths());
    else
      return Digits(tap, p.by_widths, p.by_heights, p.by_depths);
  }
  // Those of a phase.
  __device__ __forceinline__ static int positions(const ImplicitParams& p) {
    return p.batch * p.along_depth.outputs * p.along_height.outputs * p.along_width.outputs;
  }
  __device__ __forceinline__ static Digits of_position(const ImplicitParams& p, int at) {
    return Digits(at, p.of_width, p.of_height, p.of_depth);
  }
  __device__ __forceinline__ WindowPlace place_of(const ImplicitParams& p, int position) const {
    const Digits at = of_position(p, position);
    return place(p, at.beyond, at.depth, at.height, at.width);
  }
  // Where the outputs' position (n, d, h, w) is.
  __device__ __forceinline__ WindowPlace place(const ImplicitParams& p, int n, int d, int h, int w) const {
    WindowPlace found;
    found.width = meets(p.along_width, width, w, 0);
    found.height = meets(p.along_height, height, h, 0);
    found.depth = meets(p.along_depth, depth, d, 0);
    found.x = n * p.x_batch + found.depth * p.x_depth + found.height * p.x_row +
              (long long)found.width * p.x_pixel;
    const int along = ROTATED ? p.along_width.stride : 1, down = ROTATED ? p.along_height.stride : 1,
              deep = ROTATED ? p.along_depth.stride : 1;
    const int to_w = width.output + w * along, to_h = height.output + h * down,
              to_d = depth.output + d * deep;
    found.there = n < p.batch && to_w < p.out_width && to_h < p.out_height && to_d < p.out_depth;
    found.y = n * p.y_batch + to_d * p.y_depth + to_h * p.y_row + (long long)to_w * p.y_pixel;
    if (!found.there) found.depth = -2147483647 - 1;  // no tap of it lies in x
    return found;
  }
};

// From one column of patches to one so many columns further on.
struct ColumnStep {
  int channels;
  Digits taps;
  __device__ __forceinline__ ColumnStep(const ImplicitParams& p, const ImplicitWork& work, int columns)
      : taps(work.digits(p, divide(p.by_channels, columns, channels))) {}
};

// A column of patches: a channel, a tap, and where they are.
struct PatchColumn {
  int channel;
  Digits tap;
  bool there;
  int depth, height, width;  // from a window's first pixel on
  long long x, filter;
  __device__ __forceinline__ void set(const ImplicitParams& p, const ImplicitWork& work, int at) {
    const ColumnStep from_first(p, work, at);
    channel = from_first.channels, tap = from_first.taps;
  }
  __device__ __forceinline__ void advance(const ImplicitWork& work, const ColumnStep& step) {
    channel += step.channels;
    const bool more = channel >= work.channels;
    channel -= more ? work.channels : 0;
    tap.add(step.taps, more, work.widths(), work.heights(), work.depths());
  }
  __device__ __forceinline__ long long number(const ImplicitWork& work) const {  // of its tap
    return (tap.depth * (long long)work.heights() + tap.height) * work.widths() + tap.width;
  }
  // When it is needed: registers keep no places from step to step.
  __device__ __forceinline__ void find(const ImplicitParams& p, const ImplicitWork& work) {
    there = work.taps > 0 && tap.beyond == 0;
    width = tap.width * p.along_width.step, height = tap.height * p.along_height.step;
    depth = tap.depth * p.along_depth.step;
    x = depth * p.x_depth + height * p.x_row + (long long)width * p.x_pixel;
    filter = (work.depth.first + tap.depth * p.along_depth.apart) * p.depth_stride +
             (work.height.first + tap.height * p.along_height.apart) * p.row_stride +
             (work.width.first + tap.width * p.along_width.apart) * p.width_stride;
  }
};
