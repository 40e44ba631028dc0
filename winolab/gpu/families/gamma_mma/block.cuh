// A block of gamma_mma/kernel.cuh: its parameters and shape.
#pragma once

#include "parts.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

using Output = Either<WIDE_OUT, float, unsigned short>::type;

struct GammaMmaParams {
  const Element* x;
  const uint4* u;
  Output* y;
  Header* header;  // scale.cuh
  const Row* rows;
  #include "correlation_fields.cuh"
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int SPLIT_K = 1;                               // blocks share no summation
constexpr int BT = TILE_STATES / ALPHA;                // tiles
constexpr int SHARERS = WARPS / ALPHA;                 // warps of a state
constexpr int TILES = BT / SHARERS;                    // of a warp
constexpr int COLUMNS = BT / ROWS;
constexpr int V_TILES = (ROWS + SHARE - 1) * COLUMNS;  // of a V stage
constexpr int UNITS = V_TILES / 8;                     // of 8 tiles × KC channels, one a warp
constexpr int SLOTS = (UNITS + WARPS - 1) / WARPS;     // of a warp
constexpr int V_PART = V_TILES * KC * 2;               // bytes of a state's part
constexpr int V_SIZE = ALPHA * PARTS * V_PART;         // of a stage
constexpr int TILES_OUT = BT / PASSES;                 // tiles staged in a pass of the epilogue
constexpr int ROW_OUT = BM + 4;                        // floats: lanes of a store hit 32 banks
constexpr int OUT_SIZE = ALPHA * TILES_OUT * ROW_OUT * 4;
static_assert(BM == 64 && COLUMNS % 8 == 0 && TILES % (16 > 8 * PASSES ? 16 : 8 * PASSES) == 0,
              "block shape");
