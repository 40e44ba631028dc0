// A map's phases by a stride as channels of a smaller map, and back: pixel i of the smaller one has,
// for every phase q, the channels of the map's pixel step i + q - shift, in the order of phases by
// depth, height, width. What lies outside is 0: pixels and channels behind the last of the phases; of
// a map that is made, what the smaller one does not have. A filter is such a map, of taps.
//
// Roles: a block has a row, or a part of it, of the map that is made. Of the smaller map it first
// finds where the elements of a pixel lie in the map, or the vectors where channels are whole ones;
// its threads then have vectors of 16 bytes, those of a pixel side by side. Of the map they have
// elements or vectors.
#pragma once

#include "either.cuh"
#include "quotient.cuh"

constexpr int STACK_THREADS = 256, STACK_EACH = 4, STACK_VECTOR = 16 / STACK_SIZE;
constexpr int STACK_HELD = 64;  // vectors of a pixel that a block has, at most
using StackElement = Either<STACK_SIZE == 4, unsigned, unsigned short>::type;

struct StackAxis {
  long long stride;   // of the map
  int size, stacked;  // pixels of the map, and of the smaller one
  int step, phases, shift;
};

struct StackParams {
  StackElement* map;
  StackElement* stacked;  // dense
  long long batch_stride, channel_stride;  // of the map
  int channels, pitch;  // of a pixel of the map; of the smaller one's, with those that are filled up
  int parts, across;    // blocks of a row, and of a pixel of the smaller map
  int wide;             // whether elements of both come in vectors
  StackAxis depth, height, width;
  Quotient by_held;      // vectors of a pixel of the smaller map that a block has
  Quotient by_channels;  // of the map, or vectors of them where ``wide``
  Quotient by_step;      // along the width
};

// Where an element or a vector of the smaller map's first pixel lies, and at which pixel of a row of
// the map: before the row where there is none at any pixel.
struct StackSource {
  const StackElement* from;
  int w;
};

// The map's pixel that is the phase of a pixel of the smaller one, or -1.
__device__ __forceinline__ int unstacked(const StackAxis& axis, int pixel, int phase) {
  const int at = pixel * axis.step + phase - axis.shift;
  return phase < axis.phases && at >= 0 && at < axis.size ? at : -1;
}

__device__ __forceinline__ StackSource stack_source(const StackParams& p, int row, int element) {
  const int above = row / p.height.stacked;
  int channel;
  const int behind = divide(p.by_channels, element, channel);
  const int phase = behind % p.width.phases, of_height = behind / p.width.phases;
  const int h = unstacked(p.height, row % p.height.stacked, of_height % p.height.phases);
  const int d = unstacked(p.depth, above % p.depth.stacked, of_height / p.height.phases);
  if ((d | h) < 0) return {p.map, -p.width.stacked * p.width.step};
  const int w = phase - p.width.shift;
  return {p.map + above / p.depth.stacked * p.batch_stride + d * p.depth.stride +
              h * p.height.stride + w * p.width.stride +
              channel * (p.wide ? STACK_VECTOR : p.channel_stride),
          w};
}

// A row of the smaller map.
template <bool WIDE>
__device__ __forceinline__ void stack_row(const StackParams& p, int row, int part) {
  constexpr int PIECES = WIDE ? 1 : STACK_VECTOR, EACH = WIDE ? STACK_EACH : 1;
  using Piece = typename Either<WIDE, uint4, StackElement>::type;
  __shared__ StackSource sources[STACK_HELD * PIECES];
  const int vectors = p.pitch / STACK_VECTOR, held = p.by_held.divisor;
  const int first = part % p.across * held, here = min(held, vectors - first);
  for (int e = threadIdx.x; e < here * PIECES; e += STACK_THREADS)
    sources[e] = stack_source(p, row, first * PIECES + e);
  __syncthreads();

  Piece v[EACH][PIECES];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    int vector;
    const int pixel = divide(
        p.by_held, (part / p.across * EACH + k) * STACK_THREADS + threadIdx.x, vector);
    const bool there = pixel < p.width.stacked && vector < here;
    const int w = pixel * p.width.step;
    const long long apart = w * p.width.stride;
#pragma unroll
    for (int e = 0; e < PIECES; ++e) {
      v[k][e] = Piece{};
      const StackSource source = sources[there ? vector * PIECES + e : 0];
      if (there && source.w + w >= 0 && source.w + w < p.width.size)
        v[k][e] = *reinterpret_cast<const Piece*>(source.from + apart);
    }
  }
  uint4* const to = reinterpret_cast<uint4*>(p.stacked) +
                    (long long)row * p.width.stacked * vectors + first;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    int vector;
    const int pixel = divide(
        p.by_held, (part / p.across * EACH + k) * STACK_THREADS + threadIdx.x, vector);
    if (pixel >= p.width.stacked || vector >= here) continue;
    if constexpr (WIDE) {
      to[pixel * vectors + vector] = v[k][0];
    } else {
      unsigned word[4] = {};
#pragma unroll
      for (int e = 0; e < PIECES; ++e)
        word[e * STACK_SIZE / 4] |= (unsigned)v[k][e] << e * STACK_SIZE % 4 * 8;
      to[pixel * vectors + vector] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

// The pixel and the phase of the smaller map that are the map's; whether there are such.
__device__ __forceinline__ bool stacked(const StackAxis& axis, int at, int& pixel, int& phase) {
  const int shifted = at + axis.shift;
  pixel = shifted / axis.step, phase = shifted % axis.step;
  return shifted >= 0 && pixel < axis.stacked && phase < axis.phases;
}

// A row of the map.
template <class T>
__device__ __forceinline__ void unstack_row(const StackParams& p, int row, int part) {
  constexpr int LENGTH = sizeof(T) / sizeof(StackElement);
  const int h = row % p.height.size, above = row / p.height.size;
  const int d = above % p.depth.size, image = above / p.depth.size;
  int of_height, phase_height, of_depth, phase_depth;
  const bool there = stacked(p.height, h, of_height, phase_height) &
                     stacked(p.depth, d, of_depth, phase_depth);
  const long long pixels =
      (((long long)image * p.depth.stacked + of_depth) * p.height.stacked + of_height) *
      p.width.stacked;
  const StackElement* const from =
      p.stacked + pixels * p.pitch +
      (phase_depth * p.height.phases + phase_height) * p.width.phases * p.channels;
  StackElement* const to = p.map + image * p.batch_stride + d * p.depth.stride + h * p.height.stride;
  const int first = part * (STACK_THREADS * STACK_EACH) + threadIdx.x;
  T v[STACK_EACH] = {};
#pragma unroll
  for (int k = 0; k < STACK_EACH; ++k) {
    int channel, phase;
    const int w = divide(p.by_channels, first + k * STACK_THREADS, channel);
    const int shifted = w + p.width.shift, pixel = divide(p.by_step, max(0, shifted), phase);
    const bool is = shifted >= 0 && pixel < p.width.stacked && phase < p.width.phases;
    if (is && there && w < p.width.size)
      v[k] = *reinterpret_cast<const T*>(from + (long long)pixel * p.pitch + phase * p.channels +
                                         channel * LENGTH);
  }
#pragma unroll
  for (int k = 0; k < STACK_EACH; ++k) {
    int channel;
    const int w = divide(p.by_channels, first + k * STACK_THREADS, channel);
    if (w < p.width.size) *reinterpret_cast<T*>(to + w * p.width.stride + channel * LENGTH) = v[k];
  }
}

extern "C" __global__ void __launch_bounds__(STACK_THREADS)
    winolab_stack(const __grid_constant__ StackParams p) {
  const int row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
  if (p.wide)
    stack_row<true>(p, row, part);
  else
    stack_row<false>(p, row, part);
}

extern "C" __global__ void __launch_bounds__(STACK_THREADS)
    winolab_unstack(const __grid_constant__ StackParams p) {
  const int row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
  if (p.wide)
    unstack_row<uint4>(p, row, part);
  else
    unstack_row<StackElement>(p, row, part);
}
