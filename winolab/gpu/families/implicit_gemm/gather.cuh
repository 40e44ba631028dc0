// The producer warps of the wgmma kernel: what they copy into its stages.
//
// A stage has planes of DEPTH rows (of positions' patches, or w's of forward: a row each) of 64 elements,
// 128 bytes, as Swizzle::B128 has them (mma.cuh). A thread copies vectors of the same column of some
// rows of its warp. Rows that change from step to step (of gradients positions, of backward data's
// filter its taps and channels) a lane each of a warp counts up and leaves to the others in shared
// memory, one step after another in two halves.
#pragma once

#include "operands.cuh"

constexpr int CONSUMERS = 32 * WARP_ROWS * WARP_COLUMNS, PRODUCER_WARPS = PRODUCERS / 32;
constexpr int ROW_BYTES = 128, PLANE = DEPTH * ROW_BYTES;
constexpr int OWN = DEPTH / PRODUCER_WARPS;  // rows of a warp that change
static_assert(DEPTH == 64 && OWN <= 32, "a row has 64 elements, a lane one row");

struct GatherShared {
  alignas(1024) unsigned char x[STAGES][(GRADIENT ? BLOCK_COLUMNS : BLOCK_ROWS) * ROW_BYTES];
  alignas(1024) unsigned char w[STAGES][(GRADIENT ? BLOCK_ROWS : BLOCK_COLUMNS) * ROW_BYTES];
  WindowPlace places[GRADIENT ? 2 * DEPTH : BLOCK_ROWS];  // of a step, and of the next one
  FilterRow filter_rows[ROTATED ? 2 * DEPTH : 1];
  unsigned long long full[STAGES], empty[STAGES];
};
static_assert(sizeof(GatherShared) <= SHARED, "as the plan has it");

// How a warp's lanes copy rows of 64 elements in vectors of LENGTH: so many rows at once.
template <int LENGTH>
struct Lanes {
  static_assert(LENGTH >= 2, "an asynchronous copy has 4 bytes at least");
  static constexpr int ACROSS = 64 / LENGTH, ROWS = 32 / ACROSS;
  __device__ __forceinline__ static int column() { return threadIdx.x % ACROSS * LENGTH; }
  __device__ __forceinline__ static int row() { return threadIdx.x % 32 / ACROSS; }
  // Where this lane's vector of the i-th rows lies, from the first row on: a multiple of eight.
  __device__ __forceinline__ static int first() {
    return row() * ROW_BYTES + (column() / 8 ^ row()) * 16 + column() % 8 * SIZE;
  }
  __device__ __forceinline__ static int at(int first, int i) {
    return i * ROWS * ROW_BYTES + (first ^ i * ROWS % 8 * 16);
  }
  // Elements ``apart``, or zeros where not inside; WHOLE: they are a vector.
  template <bool WHOLE>
  __device__ __forceinline__ static void copy(unsigned char* to, const Element* from, long long apart,
                                              bool inside) {
    if constexpr (WHOLE) {
      copy_async_at<LENGTH * SIZE, 0>(to, from, inside);
    } else {
#pragma unroll 1
      for (int e = 0; e < LENGTH; ++e)
        reinterpret_cast<Element*>(to)[e] = inside ? __ldg(from + e * apart) : Element(0);
    }
  }
};
using XLanes = Lanes<XVEC>;
using WLanes = Lanes<WVEC>;

struct Gather {
  static constexpr int PLANES = GRADIENT ? BLOCK_COLUMNS / 64 : 1;
  static constexpr int X_ROWS = (GRADIENT ? DEPTH : BLOCK_ROWS) / PRODUCER_WARPS,
                       X_COUNT = X_ROWS / XLanes::ROWS;
  static constexpr int W_ROWS = (W_BY_DEPTH ? DEPTH : BLOCK_COLUMNS) / PRODUCER_WARPS,
                       W_COUNT = W_ROWS / WLanes::ROWS;
  static constexpr int MOST = BLOCKS == 1 && BLOCK_COLUMNS < 256 ? 8 : 4;
  static constexpr int KEPT = !GRADIENT && X_COUNT <= MOST ? X_COUNT : 0;  // rows in registers
  static_assert(X_ROWS % 8 == 0 && W_ROWS % 8 == 0, "swizzles repeat");
  const ImplicitParams& p;
  const ImplicitWork& work;
  GatherShared& shared;
  const int warp, lane;
  const ColumnStep further;   // DEPTH columns
  PatchColumn patch[PLANES];  // of gradients the same in all steps
  PatchColumn weight;         // of forward's filter
  PatchColumn row;            // ROTATED: of a lane, in w's stage
  Digits position, ahead;     // GRADIENT: a lane's, and DEPTH positions
  WindowPlace kept[KEPT ? KEPT : 1];
  int step;

  __device__ __forceinline__ Gather(const ImplicitParams& p, const ImplicitWork& work,
                                    GatherShared& shared)
      : p(p), work(work), shared(shared), warp((threadIdx.x - CONSUMERS) / 32), lane(threadIdx.x % 32),
        further(p, work, DEPTH), step(work.begin) {
#pragma unroll
    for (int i = 0; i < PLANES; ++i) {
      patch[i].set(p, work, (GRADIENT ? work.column + i * 64 : 0) + XLanes::column());
      if constexpr (GRADIENT) {
        patch[i].find(p, work);
        patch[i].x += patch[i].channel;
      }
    }
    const int own = warp * OWN + lane % OWN;
    if constexpr (!W_BY_DEPTH) weight.set(p, work, WLanes::column());
    if constexpr (ROTATED) row.set(p, work, own);
    if constexpr (GRADIENT)
      position = work.of_position(p, step * DEPTH + own), ahead = work.of_position(p, DEPTH);
#pragma unroll
    for (int i = 0; i < KEPT; ++i) kept[i] = x_place(i);
  }

  // The rows of the next step, which its copies find in shared memory.
  __device__ __forceinline__ void prepare() {
    if constexpr (!W_BY_DEPTH) return;
    const int at = step % 2 * DEPTH + warp * OWN + lane % OWN;
    if constexpr (GRADIENT) {
      const WindowPlace place =
          work.place(p, position.beyond, position.depth, position.height, position.width);
      if (lane < OWN) shared.places[at] = place;
      position.add(ahead, 0, p.along_width.outputs, p.along_height.outputs, p.along_depth.outputs);
    }
    if constexpr (ROTATED) {
      row.find(p, work);
      if (lane < OWN)
        shared.filter_rows[at] = {row.filter + row.channel * p.c_stride, row.channel, row.there};
      row.advance(work, further);
    }
    __syncwarp();
  }

  // WHOLE: copies are vectors, else loads and stores.
  template <bool WHOLE>
  __device__ __forceinline__ void start(int stage) {
    if constexpr (GRADIENT)
      gradient<WHOLE>(shared.x[stage], shared.w[stage]);
    else
      patches<WHOLE>(shared.x[stage]), weights<WHOLE>(shared.w[stage]);
    ++step;
  }

 private:
  __device__ __forceinline__ const WindowPlace& x_place(int i) const {
    return shared.places[warp * X_ROWS + i * XLanes::ROWS + XLanes::row()];
  }
  __device__ __forceinline__ bool meets_x(const PatchColumn& tap, const WindowPlace& at) const {
    return tap.there & ((unsigned)(at.depth + tap.depth) < (unsigned)p.depth) &
           ((unsigned)(at.height + tap.height) < (unsigned)p.height) &
           ((unsigned)(at.width + tap.width) < (unsigned)p.width);
  }

  template <bool WHOLE>
  __device__ __forceinline__ void patches(unsigned char* stage) {
    PatchColumn& tap = patch[0];
    tap.find(p, work);
    const Element* x = p.x + (long long)work.group * p.channels + tap.channel + tap.x;
    const int first = XLanes::first();
#pragma unroll
    for (int i = 0; i < X_COUNT; ++i) {
      const WindowPlace& at = KEPT ? kept[i] : x_place(i);
      XLanes::template copy<WHOLE>(stage + warp * (X_ROWS * ROW_BYTES) + XLanes::at(first, i), x + at.x, 1,
                   meets_x(tap, at));
    }
    tap.advance(work, further);
  }

  template <bool WHOLE>
  __device__ __forceinline__ void weights(unsigned char* stage) {
    const int first = WLanes::first();
    stage += warp * (W_ROWS * ROW_BYTES);
    const Element* w = p.w + work.group * p.group_stride;
    if constexpr (ROTATED) {
#pragma unroll
      for (int i = 0; i < W_COUNT; ++i) {
        const FilterRow at =
            shared.filter_rows[step % 2 * DEPTH + warp * OWN + i * WLanes::ROWS + WLanes::row()];
#pragma unroll
        for (int plane = 0; plane < BLOCK_COLUMNS / 64; ++plane) {
          const int n = work.column + plane * 64 + WLanes::column();
          const int c = MERGED ? n - (at.channel >> p.channels_log << p.out_log) : n;
          const bool inside = (at.there != 0) & ((unsigned)c < (unsigned)p.out_channels);
          WLanes::template copy<WHOLE>(stage + plane * PLANE + WLanes::at(first, i), w + at.at + c * p.m_stride,
                       p.m_stride, inside);
        }
      }
    } else {
      weight.find(p, work);
      w += weight.filter;
#pragma unroll
      for (int i = 0; i < W_COUNT; ++i) {
        const int n = work.column + warp * W_ROWS + i * WLanes::ROWS + WLanes::row();
        const int c = MERGED ? weight.channel - (n >> p.out_log << p.channels_log) : weight.channel;
        const bool inside = weight.there & (n < work.columns) & ((unsigned)c < (unsigned)p.channels);
        WLanes::template copy<WHOLE>(stage + WLanes::at(first, i), w + n * p.m_stride + c * p.c_stride, p.c_stride,
                     inside);
      }
      weight.advance(work, further);
    }
  }

  template <bool WHOLE>
  __device__ __forceinline__ void gradient(unsigned char* x_stage, unsigned char* w_stage) {
    const WindowPlace* places = shared.places + step % 2 * DEPTH + warp * OWN;
    const Element* x = p.x + (long long)work.group * p.channels;
    const Element* dy = p.w + (long long)work.group * p.out_channels + work.row + WLanes::column();
    const int x_first = XLanes::first(), w_first = WLanes::first();
    x_stage += warp * (X_ROWS * ROW_BYTES), w_stage += warp * (W_ROWS * ROW_BYTES);
#pragma unroll
    for (int i = 0; i < X_COUNT; ++i) {
      const WindowPlace at = places[i * XLanes::ROWS + XLanes::row()];
#pragma unroll
      for (int plane = 0; plane < PLANES; ++plane)
        XLanes::template copy<WHOLE>(x_stage + plane * PLANE + XLanes::at(x_first, i), x + at.x + patch[plane].x, 1,
                     meets_x(patch[plane], at));
    }
#pragma unroll
    for (int i = 0; i < W_COUNT; ++i) {
      const WindowPlace& at = places[i * WLanes::ROWS + WLanes::row()];
#pragma unroll
      for (int plane = 0; plane < BLOCK_ROWS / 64; ++plane) {
        const bool inside =
            (at.there != 0) & (work.row + WLanes::column() + plane * 64 < work.columns);
        WLanes::template copy<WHOLE>(w_stage + plane * PLANE + WLanes::at(w_first, i), dy + at.y + plane * 64, 1,
                     inside);
      }
    }
  }
};
