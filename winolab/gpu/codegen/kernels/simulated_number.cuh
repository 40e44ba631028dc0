// What numbers around simulated sums are: FP32, or where WIDE FP64, of magnitudes.
#pragma once

template <int>
struct NumberOf {
  using Type = float;
};
template <>
struct NumberOf<1> {
  using Type = double;
};
using Number = NumberOf<WIDE>::Type;
