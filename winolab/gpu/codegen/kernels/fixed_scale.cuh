// What scale.cuh has, for tensors of 16 bits: no scale but FP16's, whose elements must not overflow
// in the transforms, and nothing to check. BT and AT are printed with the scale in their constants
// (families/gamma/source.py).
#pragma once

struct Header;
struct Row {};
constexpr int CHECKED_OUTPUTS = 0;

constexpr float FIXED_FILTER = BF16 ? 1.0f : 1.0f / (1 << SCALE_FILTER);

__device__ __forceinline__ float input_scale(const Header*) { return 1.0f; }
__device__ __forceinline__ float inverse_of(float scale) { return 1.0f / scale; }
__device__ __forceinline__ float image_scale(const Header*, float scale, int) { return scale; }
__device__ __forceinline__ bool one_scale(const Header*, float, int) { return true; }
__device__ __forceinline__ float scaled(float, float x) { return x; }

struct ChannelFactors {
  __device__ __forceinline__ ChannelFactors() {}
  __device__ __forceinline__ ChannelFactors(const Row*) {}
};
template <int COUNT>
struct BlockFactors {
  __device__ __forceinline__ void set(int, const ChannelFactors&) {}
  __device__ __forceinline__ ChannelFactors at(int) const { return {}; }
};
struct Factors {
  __device__ __forceinline__ Factors() {}
  __device__ __forceinline__ Factors(const ChannelFactors&, float) {}
};

template <int CHANNELS = 4, bool KEPT = false>
struct AccuracyCheck {
  __device__ __forceinline__ AccuracyCheck(const Header*, const Row*) {}
  template <class Block>
  __device__ __forceinline__ AccuracyCheck(const Header*, const Block&, int) {}
  __device__ __forceinline__ unsigned tile(const float (&)[CHANNELS][N], int, float) const {
    return 0;
  }
  __device__ __forceinline__ Factors factors(int, float) const { return {}; }
};

template <class T>
__device__ __forceinline__ void note_in_row(Header*, T*, int, bool, int, const Factors&) {}
