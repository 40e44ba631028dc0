// A block of gamma_wgmma/kernel.cuh: its parameters, shape and shared memory.
#pragma once

#include "parts.cuh"
#include "tensor_map.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

using Output = Either<WIDE_OUT, float, unsigned short>::type;

struct GammaWgmmaParams {
  TensorMap x_map;  // where RUN > 0
  const Element* x;
  const uint4* u;
  Output* y;
  Header* header;  // scale.cuh
  const Row* rows;
  #include "correlation_fields.cuh"
  int rotation;  // work tiles after which blocks' output channels move on by one
  int batch;
  int abreast, pitch;  // where PACKED: images side by side; rows from one to that below
#ifdef EPILOGUE
  alignas(64) EpilogueParams epilogue;
#endif
};

constexpr int CONSUMERS = 256, PRODUCERS = 128, LOADERS = RUN ? 128 : 0;
constexpr int THREADS = CONSUMERS + PRODUCERS + LOADERS;
// of the loaders, behind the warp of the boxes
constexpr int FILTER_LOADERS = U_RING ? 64 : 0;
constexpr int HELD = ALPHA / 2;                       // states of a consumer warpgroup
constexpr int HALVES = BT / 64;                       // a state's tiles, 64 a wgmma
constexpr int STEPS = HELD * HALVES;                  // accumulators, of 64 × BM
constexpr int SUMS = BM / 2;                          // of a thread in each
constexpr int COLUMNS = BT / ROWS;
constexpr int V_STAGES = 2;
constexpr int V_TILES = (ROWS + SHARE - 1) * COLUMNS; // of a V stage
// units of 8 tiles × KC channels of a producer warp
constexpr int SLOTS = (V_TILES + 31) / 32;
constexpr int V_PART = V_TILES * KC * 2;              // bytes of a state's part
constexpr int V_SIZE = ALPHA * PARTS * V_PART;
constexpr int TILES_OUT = BT / PASSES;                // tiles staged in a pass of the epilogue
constexpr int PLACES = U_AHEAD > 0 ? U_AHEAD : 1;     // of filters on their way
constexpr int BUFFERS = 2;                            // of staged tiles
constexpr bool STARTS = N < CHECKED_OUTPUTS;        // whether tiles tell that they begin a row
// Whether images may have scales of their own. Rows of a packed batch go on from one to the next.
constexpr bool BY_IMAGE = PARTS == 2 && PACKED == 0;
static_assert(STEPS * SUMS <= 128 && COLUMNS % 8 == 0 && TILES_OUT % 8 == 0, "block shape");

// Neighbouring channels of a pixel, four and two.
using Loaded = Either<WIDE, float4, uint2>::type;
using Pair = Either<WIDE, float2, unsigned>::type;
__device__ __forceinline__ float2 pair_of(const float4& v, int pair) {
  return pair ? make_float2(v.z, v.w) : make_float2(v.x, v.y);
}
__device__ __forceinline__ unsigned pair_of(const uint2& v, int pair) { return pair ? v.y : v.x; }
__device__ __forceinline__ void values(const float2& v, float& first, float& second) {
  first = v.x, second = v.y;
}
__device__ __forceinline__ void values(unsigned v, float& first, float& second) {
  unpack<BF16>(v, first, second);
}
