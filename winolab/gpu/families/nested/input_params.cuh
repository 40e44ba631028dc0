// Input tiles of nested Winograd, V = (BT ⊗ BT) x of every frame, scaled, as 16-bit parts:
// [state][image][frame][tile row][tile][channels], the high parts of 32 channels, then their low ones,
// or all channels, in ``pitch`` words. The grid of tiles goes on behind the outputs' by as many as the
// pieces of a long filter need.
#pragma once

#include "filter_params.cuh"
#include ROWS_FILE

struct InputParams {
  const Element* x;  // the group's first channel, the chunk's first image
  unsigned* v;
  const Header* header;
  long long batch_stride, depth_stride, row_stride;
  int pixel_stride, depth, height, width, channels, pad_height, pad_width;
  int tiles_height, tiles_width, chunks, pitch, units;  // units: tiles of all frames × chunks
  int first, batch;                                     // the chunk's first image; of all images
  NestedFilterParams filter;
  int describers;  // blocks, the first ones, that describe the filter's rows
};

constexpr int INPUT_THREADS = FILTER_THREADS;

// Two neighbouring channels of a pixel, of which ``count`` are.
__device__ __forceinline__ float2 load_two(const float* x, int count) {
  if constexpr (XVEC == 2)
    return count > 0 ? __ldg(reinterpret_cast<const float2*>(x)) : make_float2(0.0f, 0.0f);
  return make_float2(count > 0 ? __ldg(x) : 0.0f, count > 1 ? __ldg(x + 1) : 0.0f);
}
__device__ __forceinline__ float2 load_two(const unsigned short* x, int count) {
  unsigned pair = 0;
  if constexpr (XVEC == 2) {
    if (count > 0) pair = __ldg(reinterpret_cast<const unsigned*>(x));
  } else {
    if (count > 0) pair = __ldg(x);
    if (count > 1) pair |= (unsigned)__ldg(x + 1) << 16;
  }
  float2 v;
  unpack<BF16>(pair, v.x, v.y);
  return v;
}

// Where a tile's chunk is in x and in V, and two channels of it that a lane has.
struct InputUnit {
  const Element* from;  // the tile's first pixel
  unsigned* v;          // of the first state
  int y0, x0, count;    // channels that are
  int image;
  bool stores;          // where V has room for them

  __device__ __forceinline__ InputUnit(const InputParams& p, int unit, int lane) {
    const int chunk = unit % p.chunks, tile = unit / p.chunks;
    const int column = tile % p.tiles_width, rest = tile / p.tiles_width;
    const int row = rest % p.tiles_height, frame = rest / p.tiles_height;
    const int channel = chunk * KC + lane * 2, word = chunk * 32 + lane;
    const bool there = unit < p.units;
    count = there ? p.channels - channel : 0;
    stores = there && word < p.pitch;
    y0 = row * NH - p.pad_height, x0 = column * NW - p.pad_width;
    image = min(p.first + frame / p.depth, p.batch - 1);
    from = p.x + frame / p.depth * p.batch_stride + frame % p.depth * p.depth_stride +
           y0 * p.row_stride + (long long)x0 * p.pixel_stride + channel;
    v = p.v + (long long)tile * p.pitch + word;
  }

  __device__ __forceinline__ float2 load(const InputParams& p, int i, int j) const {
    const bool inside = (unsigned)(y0 + i) < (unsigned)p.height && (unsigned)(x0 + j) < (unsigned)p.width;
    return load_two(from + i * p.row_stride + (long long)j * p.pixel_stride, inside ? count : 0);
  }
};

// Words of V from a state to the next.
__device__ __forceinline__ long long state_words(const InputParams& p) {
  return (long long)(p.units / p.chunks) * p.pitch;
}

__device__ __forceinline__ void store_state(unsigned* v, float first, float second) {
  unsigned parts[PARTS];
  split(first, second, parts);
  v[0] = parts[0];
  if constexpr (PARTS == 2) v[ROW_WORDS / 2] = parts[1];
}
