// Copies that bring the stages of the mma.sync kernel, by all threads.
#pragma once

#include "operands.cuh"

constexpr int X_ROWS = GRADIENT ? DEPTH : BLOCK_ROWS, X_COLUMNS = GRADIENT ? BLOCK_COLUMNS : DEPTH;
constexpr int W_ROWS = W_BY_DEPTH ? DEPTH : BLOCK_COLUMNS,
              W_COLUMNS = GRADIENT ? BLOCK_ROWS : ROTATED ? BLOCK_COLUMNS : DEPTH;
// A vector more than a row has: eight rows, or of FP32 four of a step, lie in different banks.
constexpr int X_PITCH = X_COLUMNS + (SIZE == 4 && GRADIENT ? 8 : VECTOR);
constexpr int W_PITCH = W_COLUMNS + (SIZE == 4 && W_BY_DEPTH ? 8 : VECTOR);

struct ImplicitShared {
  Element x[STAGES][(X_ROWS - 1) * X_PITCH + X_COLUMNS];
  Element w[STAGES][(W_ROWS - 1) * W_PITCH + W_COLUMNS];
  WindowPlace places[GRADIENT ? 2 * DEPTH : BLOCK_ROWS];      // of a step, and of the next one
  FilterRow filter_rows[ROTATED ? 2 * DEPTH : 1];
  int again;
};
static_assert(sizeof(ImplicitShared) <= SHARED, "as the plan has it");

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
  const ColumnStep further;  // DEPTH columns
  PatchColumn patch, weight;
  PatchColumn row;          // ROTATED: of a thread, in w's stage
  Digits position, ahead;   // GRADIENT: a thread's, and DEPTH positions
  int step;

  __device__ __forceinline__ Copies(const ImplicitParams& p, const ImplicitWork& work,
                                    ImplicitShared& shared)
      : p(p), work(work), shared(shared), further(p, work, DEPTH), step(work.begin) {
    const int first = GRADIENT ? 0 : work.begin * DEPTH;  // of the sum
    patch.set(p, work, (GRADIENT ? work.column : first) + XPart::column());
    if (!W_BY_DEPTH) weight.set(p, work, first + WPart::column());
    if (ROTATED) row.set(p, work, first + threadIdx.x);
    if (GRADIENT) {
      position = work.of_position(p, step * DEPTH + threadIdx.x), ahead = work.of_position(p, DEPTH);
    } else {
      for (int i = threadIdx.x; i < BLOCK_ROWS; i += THREADS)
        shared.places[i] = work.place_of(p, work.row + i);
    }
  }

  // The rows of the next step to start, which its copies find in shared memory after a barrier.
  __device__ __forceinline__ void prepare() {
    if (!W_BY_DEPTH || threadIdx.x >= DEPTH) return;
    const int at = step % 2 * DEPTH + threadIdx.x;
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
    const WindowPlace* places = shared.places + (GRADIENT ? step % 2 * DEPTH : 0);
    const Element* x = p.x + (long long)work.group * p.channels + patch.channel + patch.x;
    bring<XVEC, XPart::COUNT>(
        [&](int i) { return XPart::to(stage, i); },
        [&](int i, bool& inside) {
          const WindowPlace at = places[XPart::within(i)];
          inside = patch.there & ((unsigned)(at.depth + patch.depth) < (unsigned)p.depth) &
                   ((unsigned)(at.height + patch.height) < (unsigned)p.height) &
                   ((unsigned)(at.width + patch.width) < (unsigned)p.width);
          return x + at.x;
        },
        1, p.x_vectors);
  }

  __device__ __forceinline__ void bring_weights(Element* stage) const {
    const int column = WPart::column();
    if constexpr (GRADIENT) {
      const WindowPlace* places = shared.places + step % 2 * DEPTH;
      const int m = work.row + column;
      const Element* dy = p.w + (long long)work.group * p.out_channels + m;
      bring<WVEC, WPart::COUNT>(
          [&](int i) { return WPart::to(stage, i); },
          [&](int i, bool& inside) {
            const WindowPlace& at = places[WPart::within(i)];
            inside = (at.there != 0) & (m < work.columns);
            return dy + at.y;
          },
          1, p.w_vectors);
    } else if constexpr (ROTATED) {
      const FilterRow* rows = shared.filter_rows + step % 2 * DEPTH;
      const Element* w = p.w + work.group * p.group_stride;
      const int n = work.column + column;
      bring<WVEC, WPart::COUNT>(
          [&](int i) { return WPart::to(stage, i); },
          [&](int i, bool& inside) {
            const FilterRow& row = rows[WPart::within(i)];
            const int c = MERGED ? n - (row.channel >> p.channels_log << p.out_log) : n;
            inside = (row.there != 0) & ((unsigned)c < (unsigned)p.out_channels);
            return w + row.at + c * p.m_stride;
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
            inside = weight.there & (n < work.columns) & ((unsigned)c < (unsigned)p.channels);
            return w + n * p.m_stride + c * p.c_stride;
          },
          p.c_stride, p.w_vectors);
    }
  }
};
