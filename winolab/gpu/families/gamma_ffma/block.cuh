// A block of a Γ kernel: its threads, their shares of it, and its shared memory.
#pragma once

#include "either.cuh"
#include "pipeline.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

struct PlainParams {
  const float* x;
  const float* u;
  float* y;
  #include "correlation_fields.cuh"
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};
// FUSED: u is the filter itself, as the convolution runs over it; element (m = 0, tap = 0, c = 0).
struct FusedParams {
  const float* x;
  const float* u;
  float* y;
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  #include "correlation_fields.cuh"
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};
using GammaFfmaParams = Either<FUSED, FusedParams, PlainParams>::type;

constexpr int THREADS = CONSUMERS + PRODUCERS;
constexpr int WARPS = CONSUMERS / 32;
constexpr int STATES = ALPHA > WARPS ? ALPHA / WARPS : 1;          // states of a warp
constexpr int SHARERS = ALPHA < WARPS ? WARPS / ALPHA : 1;         // warps of a state
constexpr int LANES_T = 32 / LANES_M;                              // a warp's lanes along tiles
constexpr int TM = BM / LANES_M, TT = BT / SHARERS / LANES_T;      // outputs × tiles of a lane
constexpr int VECTORS = TM / 4 * 4;                                // outputs that it reads by fours
constexpr int COLUMNS = BT / ROWS;
constexpr int V_TILES = (ROWS + SHARE - 1) * COLUMNS;              // of a V stage
constexpr int ISSUER = PRODUCERS - 32;                             // the producer that copies U
constexpr int LPT = KC / CPT;                                      // producer lanes of a tile
// Threads that make V: not the issuer's warp where it is a load warp (load_warp.cuh).
constexpr int MAKERS = LOAD_WARP ? ISSUER : PRODUCERS;
constexpr int SLOTS = MAKERS / LPT;                                // tiles that producers hold
constexpr int ABREAST = OVERLAP ? 2 : 1;                           // tiles that a producer has side by side
constexpr int GROUPS = (V_TILES + ABREAST * SLOTS - 1) / (ABREAST * SLOTS) * ABREAST;  // its tiles

// Tiles of a producer whose loads are in flight together: scalars wait for memory as rarely as their
// registers allow.
constexpr int BATCH = CPT > 1      ? ABREAST
                      : ALPHA == 16 ? ABREAST
                      : GROUPS * ALPHA <= 48 ? GROUPS
                                             : 48 / ALPHA;

// Floats between V's channels: a producer warp, which holds 32 / LPT tiles × LPT channel groups,
// writes to different banks as far as the 16-byte alignment of the consumers' reads lets it.
__device__ constexpr int v_stride() {
  int stride = (V_TILES + 3) / 4 * 4;
  const int apart = (32 / LPT + 4 * CPT - 1) / (4 * CPT) * (4 * CPT) % 32;  // groups, in banks
  while (CPT * stride % 32 != apart) stride += 4;
  return stride;
}
constexpr int V_STRIDE = v_stride();
constexpr int U_SIZE = ALPHA * KC * BM, V_SIZE = ALPHA * KC * V_STRIDE;  // floats of a stage
constexpr int STAGED = BT / PASSES;                                // tiles staged in a pass
constexpr int HELD = TT / PASSES, SIDE = HELD < 4 ? HELD : 4;      // of a lane; side by side
constexpr int GROUPS_M = (TM + LANES_T - 1) / LANES_T;             // of 32 outputs, the last padded
constexpr int ROW = 32 * GROUPS_M;                                 // floats of a staged tile
static_assert(!OVERLAP || BATCH % 2 == 0, "tiles side by side are loaded together");
static_assert(!FUSED || !BULK, "who transforms the filter copies none of it");
static_assert(KC % CPT == 0 && (XVEC == 1 || XVEC == CPT), "producer shape");
static_assert(BT % ROWS == 0 && COLUMNS % 4 == 0, "four tiles of a vector lie in one row");
static_assert(BM % LANES_M == 0 && TT % 4 == 0 && BT <= CONSUMERS, "tile shape");
static_assert(TT % PASSES == 0 && (SIDE == 4 ? HELD % 4 == 0 : PASSES * SIDE == 4), "passes");

struct GammaFfmaShared {
  float u[U_STAGES][U_SIZE];  // [state][channel][output]
  float v[V_STAGES][V_SIZE];  // [state][channel][row][column]
  float out[ALPHA * STAGED * ROW];  // [state][tile][output, permuted]
  long long offset[BT];  // of a tile's first output in y
  int columns[BT];       // outputs of a tile inside y
  unsigned long long u_full[U_STAGES], u_empty[U_STAGES], v_full[V_STAGES], v_empty[V_STAGES];
};
