// The matrices that an implicit GEMM multiplies, and the copies that bring their stages.
//
// "Patches" are x as a matrix: a row for every position, a column for every tap and channel of x, taps
// first, so that few channels leave no gaps. What they meet is the filter, or of filter gradients dy:
//
//   ROLE          M (rows)         N (columns)         K (depth)           in shared memory
//   0 forward     positions        output channels     taps × channels     patches [M][K], w [N][K]
//   1 data        positions of dx  channels of x       taps × channels     patches [M][K], w [K][N]
//   2 gradient    output channels  taps × channels     positions of dy     dy [K][M], patches [K][N]
//
// A block has ``merged`` groups side by side: the filter is zero, and of gradients nothing is stored,
// where a channel meets another group's. Backward data of stride s is s phases a dimension (axes.cuh).
#pragma once

#include "pipeline.cuh"
#include "elements.cuh"
#include "axes.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

struct ImplicitParams {
  const Element* x;  // of backward data dy
  const Element* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it; of gradients dy
  Out* y;            // y, dx or dw
  float* buckets;    // of segments of a gradient, [segment][output channel][taps][channel]; or null
  long long x_batch, x_depth, x_row, y_batch, y_depth, y_row;  // strides in elements; dy's of gradients
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;  // of the filter, or of dw
  long long group_stride;  // of the filter
  int x_pixel, y_pixel;
  int batch, depth, height, width, out_depth, out_height, out_width;
  int channels, out_channels, groups, merged;  // of a group of x and of the filter's other side
  int channels_log, out_log;                   // of several merged groups: powers of two
  int blocks_rows, blocks_columns, steps, segments;  // steps of a segment
  int pad_depth, pad_height, pad_width, taps_depth, taps_height, taps_width;
  int x_vectors, w_vectors, y_vector;  // whether vectors are aligned; channels of a store
  DirectAxis along_depth, along_height, along_width;
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int SIZE = sizeof(Element), VECTOR = 16 / SIZE;
constexpr bool W_BY_DEPTH = GRADIENT || ROTATED;  // a row of w's stage is a step of the sum
constexpr int X_ROWS = GRADIENT ? BK : BM, X_COLUMNS = GRADIENT ? BN : BK;
constexpr int W_ROWS = W_BY_DEPTH ? BK : BN, W_COLUMNS = GRADIENT ? BM : ROTATED ? BN : BK;
// A vector more than a row has: eight rows, or of FP32 four of a step, lie in different banks.
constexpr int X_PITCH = X_COLUMNS + (SIZE == 4 && GRADIENT ? 8 : VECTOR);
constexpr int W_PITCH = W_COLUMNS + (SIZE == 4 && W_BY_DEPTH ? 8 : VECTOR);

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

struct ImplicitShared {
  Element x[STAGES][X_ROWS * X_PITCH];
  Element w[STAGES][W_ROWS * W_PITCH];
  WindowPlace places[GRADIENT ? 2 * BK : BM];      // of a step, and of the next one
  FilterRow filter_rows[ROTATED ? 2 * BK : 1];
  int again;
};
static_assert(sizeof(ImplicitShared) <= SHARED, "as the plan has it");

// What a block computes.
struct ImplicitWork {
  int row, column, group;  // the first ones
  int segment, begin, end;  // of a gradient's positions; steps
  int channels, columns, taps;         // of all its groups; taps that meet its outputs
  Taps depth, height, width;
  __device__ __forceinline__ ImplicitWork(const ImplicitParams& p) {
    int index = blockIdx.x;
    column = index % p.blocks_columns * BN, index /= p.blocks_columns;
    row = index % p.blocks_rows * BM, index /= p.blocks_rows;
    const int blocks = p.groups / p.merged;
    group = index % blocks * p.merged, index /= blocks;
    channels = p.merged * p.channels, columns = p.merged * p.out_channels;
    width = Taps(p.along_width, GRADIENT ? 0 : index % p.along_width.phases, p.taps_width, p.pad_width);
    if (!GRADIENT) index /= p.along_width.phases;
    height =
        Taps(p.along_height, GRADIENT ? 0 : index % p.along_height.phases, p.taps_height, p.pad_height);
    if (!GRADIENT) index /= p.along_height.phases;
    depth = Taps(p.along_depth, GRADIENT ? 0 : index, p.taps_depth, p.pad_depth);
    taps = depth.count * height.count * width.count;
    begin = segment = 0, end = (int)(((long long)taps * channels + BK - 1) / BK);
    if (GRADIENT) {
      segment = index, begin = index * p.steps;
      end = min(begin + p.steps, (positions(p) + BK - 1) / BK);
    }
  }
  // Those of a phase.
  __device__ __forceinline__ static int positions(const ImplicitParams& p) {
    return p.batch * p.along_depth.outputs * p.along_height.outputs * p.along_width.outputs;
  }
  __device__ __forceinline__ WindowPlace place(const ImplicitParams& p, int at) const {
    WindowPlace found;
    found.there = at < positions(p);
    const int w = at % p.along_width.outputs;
    at /= p.along_width.outputs;
    const int h = at % p.along_height.outputs;
    at /= p.along_height.outputs;
    const int d = at % p.along_depth.outputs, n = at / p.along_depth.outputs;
    found.width = meets(p.along_width, width, w, 0);
    found.height = meets(p.along_height, height, h, 0);
    found.depth = meets(p.along_depth, depth, d, 0);
    found.x = n * p.x_batch + found.depth * p.x_depth + found.height * p.x_row +
              (long long)found.width * p.x_pixel;
    const int along = ROTATED ? p.along_width.stride : 1, down = ROTATED ? p.along_height.stride : 1,
              deep = ROTATED ? p.along_depth.stride : 1;
    const int to_w = width.output + w * along, to_h = height.output + h * down,
              to_d = depth.output + d * deep;
    found.there &= to_w < p.out_width && to_h < p.out_height && to_d < p.out_depth;
    found.y = n * p.y_batch + to_d * p.y_depth + to_h * p.y_row + (long long)to_w * p.y_pixel;
    if (!found.there) found.depth = -2147483647 - 1;  // no tap of it lies in x
    return found;
  }
};

// A column of patches: a tap and a channel, and where they are.
struct PatchColumn {
  int channel, tap;
  bool there;
  int depth, height, width;  // from a window's first pixel on
  long long x, filter;
  __device__ __forceinline__ void set(const ImplicitParams& p, const ImplicitWork& work, int at) {
    tap = at / work.channels, channel = at - tap * work.channels;
    find(p, work);
  }
  // To BK columns further on, ``taps`` and ``more`` channels.
  __device__ __forceinline__ void advance(const ImplicitParams& p, const ImplicitWork& work, int taps,
                                          int more) {
    channel += more;
    int further = taps;
    if (channel >= work.channels) channel -= work.channels, ++further;
    if (further == 0) return;
    tap += further;
    find(p, work);
  }
  __device__ __forceinline__ void find(const ImplicitParams& p, const ImplicitWork& work) {
    there = tap < work.taps;
    if (!there) return;
    const int w = tap % work.width.count, rest = tap / work.width.count;
    const int h = rest % work.height.count, d = rest / work.height.count;
    width = w * p.along_width.step, height = h * p.along_height.step, depth = d * p.along_depth.step;
    x = depth * p.x_depth + height * p.x_row + (long long)width * p.x_pixel;
    filter = (work.depth.first + d * p.along_depth.apart) * p.depth_stride +
             (work.height.first + h * p.along_height.apart) * p.row_stride +
             (work.width.first + w * p.along_width.apart) * p.width_stride;
  }
};

// Copies of COUNT rows of a thread: of row i the ``from(i, inside)`` on, LENGTH elements ``apart``,
// or zeros where not inside. ``whole``: they are vectors.
template <int LENGTH, int COUNT, class To, class From>
__device__ __forceinline__ void bring(To to, From from, long long apart, bool whole) {
  constexpr int BYTES = LENGTH * SIZE;
  if constexpr (BYTES == 2) {  // no asynchronous copy is that small: all loads, then all stores
    Element values[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      bool inside;
      const Element* at = from(i, inside);
      values[i] = inside ? __ldg(at) : Element(0);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (Element* at = to(i)) *at = values[i];
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      bool inside;
      const Element* at = from(i, inside);
      Element* const stored = to(i);
      if (!stored) continue;
      if (LENGTH == 1 || whole) {
        copy_async<BYTES>(stored, at, inside);
        continue;
      }
#pragma unroll 1
      for (int e = 0; e < LENGTH; ++e)
        if constexpr (SIZE == 4)
          copy_async<4>(stored + e, at + e * apart, inside);
        else
          stored[e] = inside ? __ldg(at + e * apart) : Element(0);
    }
  }
}

// A thread's part of the copies of one matrix: a vector of every STEP-th row.
template <int ROWS, int COLUMNS, int PITCH, int LENGTH>
struct Part {
  static constexpr int ACROSS = COLUMNS / LENGTH, STEP = THREADS / ACROSS,
                       COUNT = (ROWS + STEP - 1) / STEP;
  static_assert(COLUMNS % LENGTH == 0 && THREADS % ACROSS == 0, "threads have whole rows");
  __device__ __forceinline__ static int column() { return threadIdx.x % ACROSS * LENGTH; }
  __device__ __forceinline__ static int row(int i) { return threadIdx.x / ACROSS + i * STEP; }
  __device__ __forceinline__ static Element* to(Element* stage, int i) {
    if (ROWS % STEP && row(i) >= ROWS) return nullptr;
    return stage + row(i) * PITCH + column();
  }
};
using XPart = Part<X_ROWS, X_COLUMNS, X_PITCH, XVEC>;
using WPart = Part<W_ROWS, W_COLUMNS, W_PITCH, WVEC>;

// The copies of all steps, in order.
struct Copies {
  const ImplicitParams& p;
  const ImplicitWork& work;
  ImplicitShared& shared;
  PatchColumn patch, weight;
  int step, taps, more;  // BK columns are so many taps and channels

  __device__ __forceinline__ Copies(const ImplicitParams& p, const ImplicitWork& work,
                                    ImplicitShared& shared)
      : p(p), work(work), shared(shared), step(work.begin) {
    taps = BK / work.channels, more = BK % work.channels;
    patch.set(p, work, (GRADIENT ? work.column : 0) + XPart::column());
    if (!W_BY_DEPTH) weight.set(p, work, WPart::column());
    if (!GRADIENT)
      for (int i = threadIdx.x; i < BM; i += THREADS) shared.places[i] = work.place(p, work.row + i);
    prepare(step);
  }

  // The rows of a step, which its copies find by then in shared memory.
  __device__ __forceinline__ void prepare(int step) const {
    if (!W_BY_DEPTH || threadIdx.x >= BK) return;
    const int at = step % 2 * BK + threadIdx.x;
    if constexpr (GRADIENT) shared.places[at] = work.place(p, step * BK + threadIdx.x);
    if constexpr (ROTATED) {
      PatchColumn c;
      c.set(p, work, step * BK + threadIdx.x);
      shared.filter_rows[at] = {c.there ? c.filter + c.channel * p.c_stride : 0, c.channel, c.there};
    }
  }

  __device__ __forceinline__ void start(int stage) {
    bring_patches(shared.x[stage]);
    bring_weights(shared.w[stage]);
    prepare(++step);
    if constexpr (!GRADIENT) patch.advance(p, work, taps, more);
    if constexpr (!W_BY_DEPTH) weight.advance(p, work, taps, more);
  }

  __device__ __forceinline__ void bring_patches(Element* stage) const {
    const WindowPlace* places = shared.places + (GRADIENT ? step % 2 * BK : 0);
    const Element* x = p.x + (long long)work.group * p.channels + patch.channel;
    bring<XVEC, XPart::COUNT>(
        [&](int i) { return XPart::to(stage, i); },
        [&](int i, bool& inside) {
          const WindowPlace& at = places[min(XPart::row(i), X_ROWS - 1)];
          inside = patch.there && (unsigned)(at.depth + patch.depth) < (unsigned)p.depth &&
                   (unsigned)(at.height + patch.height) < (unsigned)p.height &&
                   (unsigned)(at.width + patch.width) < (unsigned)p.width;
          return inside ? x + at.x + patch.x : p.x;
        },
        1, p.x_vectors);
  }

  __device__ __forceinline__ void bring_weights(Element* stage) const {
    const int column = WPart::column();
    if constexpr (GRADIENT) {
      const WindowPlace* places = shared.places + step % 2 * BK;
      const int m = work.row + column;
      const Element* dy = p.w + (long long)work.group * p.out_channels + m;
      bring<WVEC, WPart::COUNT>(
          [&](int i) { return WPart::to(stage, i); },
          [&](int i, bool& inside) {
            const WindowPlace& at = places[min(WPart::row(i), W_ROWS - 1)];
            inside = at.there && m < work.columns;
            return inside ? dy + at.y : p.w;
          },
          1, p.w_vectors);
    } else if constexpr (ROTATED) {
      const FilterRow* rows = shared.filter_rows + step % 2 * BK;
      const Element* w = p.w + work.group * p.group_stride;
      const int n = work.column + column;
      bring<WVEC, WPart::COUNT>(
          [&](int i) { return WPart::to(stage, i); },
          [&](int i, bool& inside) {
            const FilterRow& row = rows[min(WPart::row(i), W_ROWS - 1)];
            const int c = MERGED ? n - (row.channel >> p.channels_log << p.out_log) : n;
            inside = row.there && (unsigned)c < (unsigned)p.out_channels;
            return inside ? w + row.at + c * p.m_stride : p.w;
          },
          p.m_stride, p.w_vectors);
    } else {
      const Element* w = p.w + work.group * p.group_stride + weight.filter;
      bring<WVEC, WPart::COUNT>(
          [&](int i) { return WPart::to(stage, i); },
          [&](int i, bool& inside) {
            const int n = work.column + WPart::row(i);
            const int c =
                MERGED ? weight.channel - (n >> p.out_log << p.channels_log) : weight.channel;
            inside = weight.there && n < work.columns && (unsigned)c < (unsigned)p.channels;
            return inside ? w + n * p.m_stride + c * p.c_stride : p.w;
          },
          p.c_stride, p.w_vectors);
    }
  }
};
