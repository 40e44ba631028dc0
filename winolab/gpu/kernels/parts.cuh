// Values of 16 bits for the Tensor Core: one part, or a high and a low one whose sum is the value.
// Sources give PARTS, BF16 (of the parts) and WIDE (whether arrays hold FP32).

template <bool>
struct Storage {
  using type = float;
};
template <>
struct Storage<false> {
  using type = unsigned short;
};
using Element = Storage<WIDE>::type;
template <bool>
struct Wide {
  using type = double;
};
template <>
struct Wide<false> {
  using type = float;
};

__device__ __forceinline__ float value(float x) { return x; }
__device__ __forceinline__ float value(unsigned short x) {
  float first, second;
  unpack<BF16>(x, first, second);
  return first;
}

// A pair of values: [0] rounded, [1] what is left of it, rounded.
__device__ __forceinline__ void split(float first, float second, unsigned (&pair)[PARTS]) {
  pair[0] = pack<BF16>(first, second);
  if constexpr (PARTS == 2) {
    float high_first, high_second;
    unpack<BF16>(pair[0], high_first, high_second);
    pair[1] = pack<BF16>(__fsub_rn(first, high_first), __fsub_rn(second, high_second));
  }
}

// The same of more than FP32 holds, by way of FP32.
__device__ __forceinline__ void split(double first, double second, unsigned (&pair)[PARTS]) {
  pair[0] = pack<BF16>(__double2float_rn(first), __double2float_rn(second));
  if constexpr (PARTS == 2) {
    float high_first, high_second;
    unpack<BF16>(pair[0], high_first, high_second);
    pair[1] = pack<BF16>(__double2float_rn(__dsub_rn(first, high_first)),
                         __double2float_rn(__dsub_rn(second, high_second)));
  }
}

// Stores four neighbouring outputs, or as many of them as are left.
__device__ __forceinline__ void store(float* to, const float (&v)[4], int left) {
  if constexpr (YVEC == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c < left) to[c] = v[c];
  }
}
__device__ __forceinline__ void store(unsigned short* to, const float (&v)[4], int left) {
  const uint2 pairs = make_uint2(pack<BF16>(v[0], v[1]), pack<BF16>(v[2], v[3]));
  if constexpr (YVEC == 4) {
    *reinterpret_cast<uint2*>(to) = pairs;
  } else {
    const unsigned short values[] = {(unsigned short)pairs.x, (unsigned short)(pairs.x >> 16),
                                     (unsigned short)pairs.y, (unsigned short)(pairs.y >> 16)};
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c < left) to[c] = values[c];
  }
}
