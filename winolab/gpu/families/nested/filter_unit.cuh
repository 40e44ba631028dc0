// The filter of nested Winograd, U = (G ⊗ G) w of every tap of the depth and piece of RH × RW taps, as
// 16-bit parts. Layout: [state][block of BM outputs][tap of the depth][piece][chunk of KC channels]
// [output], 128 bytes each: 64 channels, or 32 high parts, then 32 low ones; 16-byte units exchanged as
// wgmma reads them with the 128-byte swizzle.
#pragma once

#include ROWS_FILE

using Wide = Either<PARTS == 2, double, float>::type;  // in which the programs are printed

// Where a row of 128 bytes has a word.
__device__ __forceinline__ int swizzled_word(int row, int word) {
  return (word / 4 ^ row % 8) * 4 + word % 4;
}

// A piece's taps of a lane's two neighbouring channels of a row, of COLUMNS columns from the ``first`` on.
template <int COLUMNS>
__device__ __forceinline__ void read_taps(const NestedFilterParams& p, const Element* w, int unit,
                                          int first, bool inside, float (&taps)[2][COLUMNS][RH]) {
  const int piece = unit / p.chunks, channel = unit % p.chunks * KC + threadIdx.x % LANES * 2;
  const int rows = piece / p.pieces_width, first_row = rows % p.pieces_height * RH;
  const int first_tap = piece % p.pieces_width * RW + first;
  w += rows / p.pieces_height * p.depth_stride;
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
    for (int i = 0; i < RH; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = first_row + i, tap = first_tap + j;
        const bool is = inside & channel + e < p.channels & row < p.height & tap < p.width;
        taps[e][j][i] = is ? value(__ldg(w + (channel + e) * p.c_stride + row * p.row_stride +
                                         tap * p.width_stride))
                           : 0.0f;
      }
}

// Stores a state of two channels in a row of U.
__device__ __forceinline__ void store_filter(unsigned* u, int row, Wide first, Wide second) {
  const int lane = threadIdx.x % LANES;
  unsigned parts[PARTS];
  split(first, second, parts);
  u[swizzled_word(row, lane)] = parts[0];
  if constexpr (PARTS == 2) u[swizzled_word(row, ROW_WORDS / 2 + lane)] = parts[1];
}

// Where a row of a piece and chunk is in U, and whether the piece has its last taps; states of a piece
// without its last tap that are of this tap alone are stored nowhere: nobody reads these zeros.
struct FilterPlace {
  unsigned* u;  // of the first state
  long long state_stride;
  bool last_row, last_tap;

  __device__ __forceinline__ FilterPlace(const NestedFilterParams& p, int m, int unit, int units) {
    state_stride = (long long)p.outputs * units * ROW_WORDS;
    u = p.u + (((long long)(m / BM) * units + unit) * BM + m % BM) * ROW_WORDS;
    const int piece = unit / p.chunks, row = piece / p.pieces_width % p.pieces_height;
    last_row = (row + 1) * RH <= p.height;
    last_tap = (piece % p.pieces_width + 1) * RW <= p.width;
  }

  __device__ __forceinline__ bool stores(int i, int j) const {
    return (i != INFINITE_H || last_row) && (j != INFINITE_W || last_tap);
  }
};
