// Arrays of FP16 (INPUT = 1) or BF16 (2); dw in FP32 (OUTPUT = 0) or in one of them.

using Element = unsigned short;
constexpr bool BF16 = INPUT == 2;

template <int TYPE>
struct Result {
  using type = unsigned short;
};
template <>
struct Result<0> {
  using type = float;
};
using Out = Result<OUTPUT>::type;

__device__ __forceinline__ void store_sum(Out* to, float sum) {
  if constexpr (OUTPUT == 0)
    *to = sum;
  else
    *to = (unsigned short)pack<OUTPUT == 2>(sum, 0.0f);
}
