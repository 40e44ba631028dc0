// What scale.cuh has, for tensors of 16 bits: no scale but FP16's, whose elements must not overflow
// in the transforms, and nothing to watch.

struct Header;
struct Row;

constexpr float FIXED_INPUT = BF16 ? 1.0f : 1.0f / (1 << SCALE_INPUT);
constexpr float FIXED_FILTER = BF16 ? 1.0f : 1.0f / (1 << SCALE_FILTER);

__device__ __forceinline__ float input_scale(const Header*) { return FIXED_INPUT; }
__device__ __forceinline__ float row_scale(const Row*, int) { return FIXED_FILTER; }

struct Watched {
  __device__ __forceinline__ Watched(const Header*, const Row*, int) {}
  template <int CHANNELS>
  __device__ __forceinline__ static void scale_back(float (&y)[CHANNELS][N]) {
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
#pragma unroll
      for (int o = 0; o < N; ++o)
        y[c][o] = __fmul_rn(__fmul_rn(y[c][o], 1 / FIXED_INPUT), 1 / FIXED_FILTER);
  }
  __device__ __forceinline__ void tile(float (&y)[4][N], int) const { scale_back(y); }
  __device__ __forceinline__ void channels() const {}
};
