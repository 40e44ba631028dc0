// A block of the fused kernel of F(N×N, R×R): its threads, their shares of it, its shared memory, and
// what it works on. Constants and the layout (layout_address and so on) are printed from Python.
#pragma once

#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "elements.cuh"
#include "pipe.cuh"
#include "pipeline.cuh"

// SPLIT: the sums of several parts are stored as they are, and added up by split_k.cuh.
using Stored = Either<SPLIT != 0, float, Out>::type;

// GRADIENT: the sum is over tiles of dy, "channels" are these tiles, "tiles" input channels; y is dw,
// y_batch from an input channel to the next, y_channel from an output channel to the next.
struct Fused2dParams {
  const Element* x;
  const void* u;  // the transformed filter; FUSED: element (m = 0, taps 0, c = 0) of the filter; dy
  Stored* y;
  long long x_batch, x_row, x_pixel, x_channel;  // strides in elements
  long long y_batch, y_row, y_pixel, y_channel;
  long long m_stride, c_stride, row_stride, width_stride;  // of the filter, FUSED; of dy (c: images)
  long long part;  // elements of y from a part of the sum to the next
  int batch, height, width, out_height, out_width, pad_height, pad_width, channels, out_channels;
  int tiles_height, tiles_width, boxes_height, boxes_width;
  int chunks, blocks_m, tile_blocks, group, work_tiles;  // group: of blocks_m, an inner loop
  int columns, parts;  // GRADIENT: input channels; parts of the sum
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

#ifdef LEFT_OUT
// Steps that a kernel leaves out of which the time is asked: its results are wrong (source.py).
constexpr int LOADS = 1, INPUT_TRANSFORM = 2, OUTPUT_TRANSFORM = 4;
#endif
constexpr int STATES = ALPHA * ALPHA, OUTPUTS = N * N;
constexpr int CONSUMERS = 256, TEAM = 128, PRODUCERS = TEAMS * TEAM;
constexpr int THREADS = CONSUMERS + PRODUCERS;
constexpr int BT = 32, KC = 8;                     // tiles; channels of a stage
// A producer has two neighbouring channels of a tile, or, CHWN, a channel of two neighbouring images'.
// GRADIENT: two columns of an element of the sum.
constexpr bool PAIRED = GRADIENT || (ALONG_TILES && XVEC == 2);
static_assert(!GRADIENT || FUSED, "dy is transformed in the block");
static_assert(!AHEAD || TEAMS == 1, "teams take turns");
constexpr int U_STRIDE = BM + (FUSED ? 4 : 0);     // floats from a channel of U to the next
constexpr int V_STRIDE = BT + 4;                   // producers' channels go to different banks
constexpr int U_SIZE = STATES * KC * U_STRIDE, V_SIZE = STATES * KC * V_STRIDE;  // floats of a stage
constexpr int ISSUER = TEAM - 1;                   // the producer that copies U
static_assert(BT * KC / 2 == TEAM, "a producer has two channels or tiles");
static_assert(HELD * TM * TT * CONSUMERS == STATES * BM * BT, "a lane's share");

// Where a work tile's results lie in y; of work tiles that are not finished: producers are V_STAGES
// ahead at most.
constexpr int PLACES = V_STAGES + 1;
struct FusedPlace {
  long long offset[BT];  // of a tile's first output
  int outputs[BT];       // which of a tile's outputs are inside y: bit row * N + column
  int first, padding;    // output channel
};

struct Fused2dShared {
  float u[U_STAGES][U_SIZE];  // [state][channel][filter]
  float v[V_STAGES][V_SIZE];  // [state][channel][tile]
  float out[BUFFERS][STATES * PLANE];
  FusedPlace place[PLACES];
  unsigned long long u_full[U_STAGES], u_empty[U_STAGES], v_full[V_STAGES], v_empty[V_STAGES];
};

// The part of the sum that a work tile is, and its stages.
struct FusedPart {
  int part = 0, begin = 0, end;
  __device__ __forceinline__ FusedPart(const Fused2dParams& p, int index) {
    end = p.chunks;
    if constexpr (SPLIT) {
      part = index / (p.blocks_m * p.tile_blocks);
      begin = (int)((long long)p.chunks * part / p.parts);
      end = (int)((long long)p.chunks * (part + 1) / p.parts);
    }
  }
};

// What a block works on: BM filters × BT tiles. The filters of a group of blocks are the inner loop,
// all tiles the next one, groups the next, parts of the sum the outer.
struct FusedWorkTile {
  int block_m, tiles;
  __device__ __forceinline__ FusedWorkTile(const Fused2dParams& p, int index) {
    if constexpr (SPLIT) index %= p.blocks_m * p.tile_blocks;
    const int group = index / (p.group * p.tile_blocks), rest = index % (p.group * p.tile_blocks);
    const int size = min(p.group, p.blocks_m - group * p.group);
    block_m = group * p.group + rest % size;
    tiles = rest / size;
  }
};

// A tile of a block: its image, and its place among the image's tiles. BOX_IMAGES, where it is not 0:
// blocks are boxes of images × rows × columns of tiles (Lavin & Gray's superblocks); otherwise tiles
// follow one another, IMAGES_FIRST or along rows.
struct FusedTile {
  int image, row, column;
  bool there;
  // Its place in the next image, which there is where images are paired.
  __device__ __forceinline__ FusedTile next_image() const {
    FusedTile found = *this;
    ++found.image;
    return found;
  }
  __device__ __forceinline__ FusedTile(const Fused2dParams& p, int block, int at) {
    if constexpr (BOX_IMAGES > 0) {
      const int first = block % p.boxes_width * BOX_COLUMNS;
      block /= p.boxes_width;
      const int top = block % p.boxes_height * BOX_ROWS;
      const int inner = IMAGES_FIRST ? at / BOX_IMAGES : at % (BOX_ROWS * BOX_COLUMNS);
      image = block / p.boxes_height * BOX_IMAGES +
              (IMAGES_FIRST ? at % BOX_IMAGES : at / (BOX_ROWS * BOX_COLUMNS));
      row = top + inner / BOX_COLUMNS, column = first + inner % BOX_COLUMNS;
      there = image < p.batch && row < p.tiles_height && column < p.tiles_width;
    } else {
      int index = block * BT + at;
      if constexpr (IMAGES_FIRST) {
        image = index % p.batch, index /= p.batch;
        column = index % p.tiles_width, row = index / p.tiles_width;
        there = row < p.tiles_height;
      } else {
        column = index % p.tiles_width, index /= p.tiles_width;
        row = index % p.tiles_height, image = index / p.tiles_height;
        there = image < p.batch;
      }
    }
  }
};
