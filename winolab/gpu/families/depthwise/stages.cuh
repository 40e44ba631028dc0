// Rows of x in shared memory: a producer thread brings them by bulk tensor copies, zeros where x has
// none, STAGES groups of GROUP rows ahead. A block has STRIPS strips of TW columns next to each other, of
// IMAGES images: as many as it has slots of threads. Of filter gradients rows of dy come along.
#pragma once

#include "arrays.cuh"
#include "pipe.cuh"
#include "tensor_map.cuh"

// Backward data of strides (SCATTER): a strip is of TQ columns of dy, in x's place, whose windows begin
// in it. Else the TW outputs of a strip meet COLS columns of x.
constexpr int TQ = SCATTER ? TW / SW : TW;
constexpr int BEFORE = SCATTER ? (KW - 1) / SW : 0;  // columns that reach into a strip from before it
constexpr int COLS = SCATTER ? TQ + BEFORE : (TW - 1) * SW + KW;
constexpr int ADVANCE = SCATTER ? TQ : TW * SW;  // columns of x from a strip to the next
constexpr int ROWS = SCATTER ? 1 : SH;           // of x that a step brings
constexpr int IMAGES = SLOTS / STRIPS, ITEMSIZE = INPUT ? 2 : 4;
constexpr int STEPS = GROUP / ROWS;                          // of a stage
constexpr int LINE = (STRIPS - 1) * ADVANCE + COLS;          // columns of x of a block
constexpr int X_SIZE = IMAGES * KD * GROUP * LINE * CHANNELS;   // elements of a stage
constexpr int DY_SIZE = GRADIENT ? IMAGES * STEPS * STRIPS * TW * CHANNELS : 0;
__device__ constexpr int aligned(int bytes) { return (bytes + 127) / 128 * 128; }

struct DepthwiseStagedParams {
  TensorMap x_map, dy_map;
  DepthwiseParams p;
};

struct DepthwiseShared {
  alignas(128) unsigned char x[STAGES][aligned(X_SIZE * ITEMSIZE)];
  alignas(128) unsigned char dy[GRADIENT ? STAGES : 1][GRADIENT ? aligned(DY_SIZE * ITEMSIZE) : 128];
  alignas(8) unsigned long long full[STAGES], empty[STAGES];
};

// What a block computes at a time.
struct BlockTile {
  int image, depth, segment, strip;

  __device__ __forceinline__ BlockTile(const DepthwiseParams& p, unsigned index) {
    strip = ThreadTile::taken(index, p.strips);
    segment = ThreadTile::taken(index, p.segments);
    depth = ThreadTile::taken(index, p.out_depth);
    image = index * IMAGES;
  }
};

__device__ __forceinline__ void barriers_begin(DepthwiseShared& shared) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], 1);
      barrier_init(&shared.empty[s], THREADS / 32);
    }
    barriers_ready();
  }
  __syncthreads();
}

// Brings ``rows`` rows of x from (c, w, h, d) of an image on, and those of dy from its (c, w, h, d) on.
struct Producer {
  DepthwiseShared& shared;
  Pipe<STAGES> pipe;

  __device__ __forceinline__ void bring(const DepthwiseStagedParams& params, int rows, int c, int w, int h,
                                        int d, int image, int dy_w, int dy_h, int dy_d) {
#pragma unroll 1
    for (int row = 0; row < rows; row += GROUP) {
      unsigned long long* full = &shared.full[pipe.stage];
      barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
      barrier_arrive_expect(full, (X_SIZE + DY_SIZE) * ITEMSIZE);
      box_copy(shared.x[pipe.stage], params.x_map, c, w, h + row, d, image, full);
      if constexpr (GRADIENT)
        box_copy(shared.dy[pipe.stage], params.dy_map, c, dy_w, dy_h + row / ROWS, dy_d, image, full);
      pipe.advance();
    }
  }
};

// A thread's part of the stages.
struct Consumer {
  DepthwiseShared& shared;
  Pipe<STAGES> pipe;
  int x, dy;  // elements from a stage's first to the thread's

  __device__ __forceinline__ explicit Consumer(DepthwiseShared& shared) : shared(shared) {
    const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
    const int strip = slot % STRIPS, image = slot / STRIPS;
    x = (image * KD * GROUP * LINE + strip * ADVANCE) * CHANNELS + lane * V;
    dy = (image * STEPS * STRIPS + strip) * TW * CHANNELS + lane * V;
  }

  __device__ __forceinline__ void await(int step) {
    if (step % STEPS == 0) barrier_wait(&shared.full[pipe.stage], pipe.phase);
  }

  // COUNT columns of the step's q-th row, of plane kd.
  template <int COUNT>
  __device__ __forceinline__ void read(int step, int q, int kd, float (&to)[COUNT][V]) const {
    const Element* from = reinterpret_cast<const Element*>(shared.x[pipe.stage]) + x +
                          (kd * GROUP + step % STEPS * ROWS + q) * LINE * CHANNELS;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      widen(*reinterpret_cast<const RawChannels*>(from + k * CHANNELS), to[k]);
  }

  // The step's row of dy.
  __device__ __forceinline__ void read_dy(int step, float (&to)[TW][V]) const {
    const Element* from = reinterpret_cast<const Element*>(shared.dy[pipe.stage]) + dy +
                          step % STEPS * STRIPS * TW * CHANNELS;
#pragma unroll
    for (int t = 0; t < TW; ++t) widen(*reinterpret_cast<const RawChannels*>(from + t * CHANNELS), to[t]);
  }

  // Lets go of a stage that is read, after its last step and at the end. Before a step's stores, so that
  // the fence waits for those of the step before alone, long since done.
  __device__ __forceinline__ void release(int step, int steps) {
    if (step % STEPS != STEPS - 1 && step != steps - 1) return;
    reads_done();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&shared.empty[pipe.stage]);
    pipe.advance();
  }
};
