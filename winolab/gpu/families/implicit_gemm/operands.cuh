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
  int patch_channels;  // of a tap of patches: of all groups of a block, or filled up (fill.cuh)
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

// A number that counts up by steps, as digits: of width, height and depth, and what is beyond.
struct Digits {
  int width, height, depth, beyond;
  __device__ __forceinline__ Digits() {}
  __device__ __forceinline__ Digits(int number, int w, int h, int d) {
    width = number % w, number /= w;
    height = number % h, number /= h;
    depth = number % d, beyond = number / d;
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
  int segment, begin, end;  // of a gradient's positions; steps
  int channels, columns, taps;         // of all its groups; taps that meet its outputs
  Taps depth, height, width;
  __device__ __forceinline__ ImplicitWork(const ImplicitParams& p) {
    int index = blockIdx.x;
    column = index % p.blocks_columns * BN, index /= p.blocks_columns;
    row = index % p.blocks_rows * BM, index /= p.blocks_rows;
    const int blocks = p.groups / p.merged;
    group = index % blocks * p.merged, index /= blocks;
    channels = p.patch_channels, columns = p.merged * p.out_channels;
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
  // Taps as digits, of which there is one at least.
  __device__ __forceinline__ int widths() const { return max(width.count, 1); }
  __device__ __forceinline__ int heights() const { return max(height.count, 1); }
  __device__ __forceinline__ int depths() const { return max(depth.count, 1); }
  __device__ __forceinline__ Digits digits(int tap) const {
    return Digits(tap, widths(), heights(), depths());
  }
  // Those of a phase.
  __device__ __forceinline__ static int positions(const ImplicitParams& p) {
    return p.batch * p.along_depth.outputs * p.along_height.outputs * p.along_width.outputs;
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
  __device__ __forceinline__ ColumnStep(const ImplicitWork& work, int columns)
      : channels(columns % work.channels), taps(work.digits(columns / work.channels)) {}
};

// A column of patches: a channel, a tap, and where they are.
struct PatchColumn {
  int channel;
  Digits tap;
  bool there;
  int depth, height, width;  // from a window's first pixel on
  long long x, filter;
  __device__ __forceinline__ void set(const ImplicitWork& work, int at) {
    const ColumnStep from_first(work, at);
    channel = from_first.channels, tap = from_first.taps;
  }
  __device__ __forceinline__ void advance(const ImplicitWork& work, const ColumnStep& step) {
    channel += step.channels;
    const bool more = channel >= work.channels;
    channel -= more ? work.channels : 0;
    tap.add(step.taps, more, work.widths(), work.heights(), work.depths());
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
    // First where all come from, so that what shared memory says of it is asked for at once.
    const Element* sources[COUNT];
    bool inside[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sources[i] = from(i, inside[i]);
    if (LENGTH == 1 || whole) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i)
        if (Element* stored = to(i)) copy_async<BYTES>(stored, sources[i], inside[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (Element* stored = to(i))
#pragma unroll 1
        for (int e = 0; e < LENGTH; ++e)
          if constexpr (SIZE == 4)
            copy_async<4>(stored + e, sources[i] + e * apart, inside[i]);
          else
            stored[e] = inside[i] ? __ldg(sources[i] + e * apart) : Element(0);
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
  __device__ __forceinline__ static int within(int i) {  // a row that there is
    return ROWS % STEP ? min(row(i), ROWS - 1) : row(i);
  }
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
  const ColumnStep further;  // BK columns
  PatchColumn patch, weight;
  PatchColumn row;          // ROTATED: of a thread, in w's stage
  Digits position, ahead;   // GRADIENT: a thread's, and BK positions
  int step;

  __device__ __forceinline__ Copies(const ImplicitParams& p, const ImplicitWork& work,
                                    ImplicitShared& shared)
      : p(p), work(work), shared(shared), further(work, BK), step(work.begin) {
    patch.set(work, (GRADIENT ? work.column : 0) + XPart::column());
    if (!W_BY_DEPTH) weight.set(work, WPart::column());
    if (ROTATED) row.set(work, threadIdx.x);
    if (GRADIENT) {
      position = of_position(step * BK + threadIdx.x), ahead = of_position(BK);
    } else {
      for (int i = threadIdx.x; i < BM; i += THREADS) {
        const Digits at = of_position(work.row + i);
        shared.places[i] = work.place(p, at.beyond, at.depth, at.height, at.width);
      }
    }
    prepare();
  }

  __device__ __forceinline__ Digits of_position(int at) const {
    return Digits(at, p.along_width.outputs, p.along_height.outputs, p.along_depth.outputs);
  }

  // The rows of the next step to start, which its copies find in shared memory after a barrier.
  __device__ __forceinline__ void prepare() {
    if (!W_BY_DEPTH || threadIdx.x >= BK) return;
    const int at = step % 2 * BK + threadIdx.x;
    if constexpr (GRADIENT) {
      shared.places[at] =
          work.place(p, position.beyond, position.depth, position.height, position.width);
      position.add(ahead, 0, p.along_width.outputs, p.along_height.outputs, p.along_depth.outputs);
    }
    if constexpr (ROTATED) {
      row.find(p, work);
      shared.filter_rows[at] = {row.there ? row.filter + row.channel * p.c_stride : 0, row.channel,
                                row.there};
      row.advance(work, further);
    }
  }

  // Then to be prepared is the step after.
  __device__ __forceinline__ void start(int stage) {
    patch.find(p, work);
    bring_patches(shared.x[stage]);
    if constexpr (!W_BY_DEPTH) weight.find(p, work);
    bring_weights(shared.w[stage]);
    ++step;
    if constexpr (!GRADIENT) patch.advance(work, further);
    if constexpr (!W_BY_DEPTH) weight.advance(work, further);
  }

  __device__ __forceinline__ void bring_patches(Element* stage) const {
    const WindowPlace* places = shared.places + (GRADIENT ? step % 2 * BK : 0);
    const Element* x = p.x + (long long)work.group * p.channels + patch.channel;
    bring<XVEC, XPart::COUNT>(
        [&](int i) { return XPart::to(stage, i); },
        [&](int i, bool& inside) {
          const WindowPlace& at = places[XPart::within(i)];
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
            const WindowPlace& at = places[WPart::within(i)];
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
            const FilterRow& row = rows[WPart::within(i)];
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
