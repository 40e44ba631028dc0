// What the kernels of nested Winograd are told of a filter: the operand map is in the strides, backward
// data swaps m and c and walks the taps backwards.
#pragma once

#include "pipeline.cuh"
#include "parts.cuh"

struct Header;
struct Row;
struct Loss;

struct NestedFilterParams {
  const Element* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it
  unsigned* u;
  Row* rows;         // of split FP32, as all but ``outputs`` below is
  unsigned* maxima;  // aside: [slice][output], bits of the largest elements
  Loss* losses;      // aside: [piece and chunk][output]
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  long long lowest;  // of a row's elements in memory, from the one that w is
  int step;          // from one to the next in memory, or 0 where it differs
  int out_channels, channels, depth, height, width;
  int pieces_height, pieces_width, chunks, outputs;  // outputs: that U has
  int slices;   // of a row, each a block's; 0: not aside
  float known;  // the scale of all rows, where the caller knows it, or 0
};

constexpr int FILTER_THREADS = 128, FILTER_WARPS = FILTER_THREADS / 32;
constexpr int LANES = KC / 2;                     // that have two channels each of a stage
constexpr int FILTER_ROWS = FILTER_THREADS / LANES;  // output channels of a block that transforms
constexpr int ROW_WORDS = 32;                     // of a row of U, and of V: 64 halves
