// What the output transform of nested Winograd is told.
#pragma once

#include "parts.cuh"

using Out = Either<WIDE_OUT, float, unsigned short>::type;

struct Header;
struct Row;

struct OutputParams {
  const void* m;
  Out* y;  // the group's first channel, the chunk's first image
  Header* header;
  const Row* rows;
  long long batch_stride, depth_stride, row_stride, state_stride;  // in elements; of a state: in M
  int pixel_stride, depth, height, width, channels, pitch;
  int tiles_height, tiles_width, pairs, units;  // units: tiles × pairs of channels
  int run;  // tiles that blocks take in order, whatever their row; 0: a box's
  int box_width, box_height, box_images, blocks_width, blocks_height;
  int first;  // the chunk's first image
};
