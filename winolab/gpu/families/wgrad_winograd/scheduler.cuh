// What a block of the products of Ωα(n, r) on Tensor Cores works on: every state s and filter tap
// (depth, row, piece of N columns) is a product M[s] = Σ_k U[s][k] ⊗ V[s][k + shift] of what
// transform.cuh wrote, over the positions k whose rows of dy and x both exist. A block has
// BM output channels × BN channels of one state, tap and segment of the sum.
#pragma once

struct GemmParams {
  const unsigned short* u;
  const unsigned short* v;
  const float* u_scale;
  const float* v_scale;
  float* m;  // [segment][state][tap of the slice][outputs, padded][channels, padded]
  long long u_positions, v_positions;
  int u_blocks, v_blocks;  // of 64 channels
  int tiles_m, tiles_n, taps, first_tap, taps_height, pieces, segments;
  int pitch, batches, depths, rows, out_depths, out_rows;
  int depth_shift, row_shift;  // x row of dy row 0 and filter row 0 in this chunk
  int accumulate;              // m holds sums of earlier chunks
};

constexpr int BM = 64 * GROUPS_M, GROUPS_N = GROUPS / GROUPS_M;
constexpr int WN = BN / GROUPS_N;  // columns of a warpgroup
constexpr int BLOCK = KS * 64;     // values of 64 channels of a stage
static_assert(GROUPS % GROUPS_M == 0 && WN % 64 == 0 && KS % 16 == 0, "tile shape");

// What a block works on, and where its positions begin. The rows that exist on both sides follow
// one another within a depth of a batch; the last step of these may be short.
struct GemmWorkTile {
  int tile_n, tile_m, tap, state, segment, piece, depths, steps_depth, length, begin, end;
  long long u, v;              // first positions in the first depth of the first batch
  long long u_depth, v_depth;  // positions of a depth
  long long u_skip, v_skip;    // from the last depth of a batch to the first of the next
  __device__ __forceinline__ GemmWorkTile(const GemmParams& p, int index) {
    tile_n = index % p.tiles_n;
    index /= p.tiles_n;
    tile_m = index % p.tiles_m;
    index /= p.tiles_m;
    tap = index % p.taps;
    index /= p.taps;
    state = index % ALPHA;
    segment = index / ALPHA;
    int at = p.first_tap + tap;
    piece = at % p.pieces;
    at /= p.pieces;
    const int row_shift = at % p.taps_height + p.row_shift;
    const int depth_shift = at / p.taps_height + p.depth_shift;
    const int row = max(0, -row_shift), row_end = min(p.out_rows, p.rows - row_shift);
    const int depth = max(0, -depth_shift), depth_end = min(p.out_depths, p.depths - depth_shift);
    depths = max(0, depth_end - depth);
    length = max(0, row_end - row) * p.pitch;
    steps_depth = (length + KS - 1) / KS;
    const long long steps = (long long)p.batches * depths * steps_depth;
    begin = (int)(steps * segment / p.segments);
    end = (int)(steps * (segment + 1) / p.segments);
    u_depth = (long long)p.out_rows * p.pitch;
    v_depth = (long long)p.rows * p.pitch;
    u_skip = (p.out_depths - depths) * u_depth;
    v_skip = (p.depths - depths) * v_depth;
    u = depth * u_depth + row * p.pitch;
    v = (depth + depth_shift) * v_depth + (row + row_shift) * p.pitch;
  }
};

// The positions of a step.
struct Cursor {
  long long u, v;
  int offset, depth;  // in the depth, in the batch
  __device__ __forceinline__ Cursor(const GemmWorkTile& work, int step) {
    const int before = work.steps_depth ? step / work.steps_depth : 0;
    offset = (step - before * work.steps_depth) * KS;
    const int batch = work.depths ? before / work.depths : 0;
    depth = before - batch * work.depths;
    u = work.u + before * work.u_depth + batch * work.u_skip + offset;
    v = work.v + before * work.v_depth + batch * work.v_skip + offset;
  }
  __device__ __forceinline__ int count(const GemmWorkTile& work) const {
    return min(KS, work.length - offset);
  }
  __device__ __forceinline__ void advance(const GemmWorkTile& work) {
    offset += KS, u += KS, v += KS;
    if (offset < work.length) return;
    u += work.u_depth - offset, v += work.v_depth - offset;
    offset = 0;
    if (++depth < work.depths) return;
    u += work.u_skip, v += work.v_skip;
    depth = 0;
  }
};
