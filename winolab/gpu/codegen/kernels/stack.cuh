// A map's phases by a stride as channels of a smaller map, and back: pixel i of the smaller one has,
// for every phase q, the channels of the map's pixel step i + q - shift, in the order of phases by
// depth, height, width. What lies outside is 0: pixels and channels behind the last of the phases; of
// a map that is made, what the smaller one does not have. A filter is such a map, of taps.
//
// Roles: a block has a row of one phase by depth and height, or a row of the map, and a part of its
// elements; a thread has EACH of them, or as many vectors of 16 bytes, a block's threads apart.
#pragma once

#include "either.cuh"

constexpr int STACK_THREADS = 256, STACK_EACH = 4;
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
  int parts;            // blocks of a row
  int wide;             // whether elements of both come in vectors
  StackAxis depth, height, width;
};

// The map's pixel that is the phase of a pixel of the smaller one, or -1.
__device__ __forceinline__ int unstacked(const StackAxis& axis, int pixel, int phase) {
  const int at = pixel * axis.step + phase - axis.shift;
  return at >= 0 && at < axis.size ? at : -1;
}

// The pixel and the phase of the smaller map that are the map's; whether there are such.
__device__ __forceinline__ bool stacked(const StackAxis& axis, int at, int& pixel, int& phase) {
  const int shifted = at + axis.shift;
  pixel = shifted / axis.step, phase = shifted % axis.step;
  return shifted >= 0 && pixel < axis.stacked && phase < axis.phases;
}

// f of the elements, or vectors, of a row of ``count``: where each is loaded from, or null, and where
// it goes.
template <class T, class From, class To>
__device__ __forceinline__ void move_row(int part, int count, From from, To to) {
  const int first = part * (STACK_THREADS * STACK_EACH) + threadIdx.x;
  T v[STACK_EACH] = {};
#pragma unroll
  for (int k = 0; k < STACK_EACH; ++k) {
    const int t = first + k * STACK_THREADS;
    const T* const place = t < count ? from(t) : nullptr;
    if (place) v[k] = *place;
  }
#pragma unroll
  for (int k = 0; k < STACK_EACH; ++k) {
    const int t = first + k * STACK_THREADS;
    if (t < count) *to(t) = v[k];
  }
}

// A row of the smaller map, of one phase by depth and height.
template <class T>
__device__ __forceinline__ void stack_row(const StackParams& p, int row, int part) {
  constexpr int LENGTH = sizeof(T) / sizeof(StackElement);
  const int of_width = p.width.phases * p.channels / LENGTH, channels = p.channels / LENGTH;
  const int phase_height = row % p.height.phases;
  row /= p.height.phases;
  const int phase_depth = row % p.depth.phases;
  row /= p.depth.phases;
  const int behind = phase_depth * p.height.phases + phase_height;
  const bool last = behind == p.depth.phases * p.height.phases - 1;
  const int run = last ? p.pitch / LENGTH - behind * of_width : of_width;  // with what is filled up
  const int h = unstacked(p.height, row % p.height.stacked, phase_height);
  const int above = row / p.height.stacked;
  const int d = unstacked(p.depth, above % p.depth.stacked, phase_depth);
  const StackElement* const from =
      p.map + above / p.depth.stacked * p.batch_stride + d * p.depth.stride + h * p.height.stride;
  T* const to = reinterpret_cast<T*>(p.stacked + (long long)row * p.width.stacked * p.pitch) +
                behind * of_width;
  move_row<T>(
      part, p.width.stacked * run,
      [&](int t) {
        const int pixel = t / run, at = t - pixel * run;
        const int phase = at / channels, channel = at - phase * channels;
        const int w = phase < p.width.phases ? unstacked(p.width, pixel, phase) : -1;
        const bool is = (d | h | w) >= 0;
        return is ? reinterpret_cast<const T*>(from + w * p.width.stride +
                                               channel * LENGTH * p.channel_stride)
                  : nullptr;
      },
      [&](int t) {
        const int pixel = t / run;
        return to + pixel * (p.pitch / LENGTH) + (t - pixel * run);
      });
}

// A row of the map.
template <class T>
__device__ __forceinline__ void unstack_row(const StackParams& p, int row, int part) {
  constexpr int LENGTH = sizeof(T) / sizeof(StackElement);
  const int channels = p.channels / LENGTH;
  const int h = row % p.height.size, above = row / p.height.size;
  const int d = above % p.depth.size, image = above / p.depth.size;
  int of_height, phase_height, of_depth, phase_depth;
  const bool there = stacked(p.height, h, of_height, phase_height) &
                     stacked(p.depth, d, of_depth, phase_depth);
  const long long first =
      ((long long)image * p.depth.stacked + of_depth) * p.height.stacked + of_height;
  const StackElement* const from =
      p.stacked + first * p.width.stacked * p.pitch +
      (phase_depth * p.height.phases + phase_height) * p.width.phases * p.channels;
  StackElement* const to = p.map + image * p.batch_stride + d * p.depth.stride + h * p.height.stride;
  move_row<T>(
      part, p.width.size * channels,
      [&](int t) {
        const int w = t / channels, channel = t - w * channels;
        int pixel, phase;
        const bool is = stacked(p.width, w, pixel, phase) & there;
        return is ? reinterpret_cast<const T*>(from + pixel * p.pitch + phase * p.channels) + channel
                  : nullptr;
      },
      [&](int t) {
        const int w = t / channels;
        return reinterpret_cast<T*>(to + w * p.width.stride) + (t - w * channels);
      });
}

extern "C" __global__ void __launch_bounds__(STACK_THREADS)
    winolab_stack(const __grid_constant__ StackParams p) {
  const int row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
  if (p.wide)
    stack_row<uint4>(p, row, part);
  else
    stack_row<StackElement>(p, row, part);
}

extern "C" __global__ void __launch_bounds__(STACK_THREADS)
    winolab_unstack(const __grid_constant__ StackParams p) {
  const int row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
  if (p.wide)
    unstack_row<uint4>(p, row, part);
  else
    unstack_row<StackElement>(p, row, part);
}
