// Loads that stay in the order of the program, so that those of neighbouring vectors overlap: the
// compiler would load each where it is needed, and once more rather than keep it.
__device__ __forceinline__ float4 load_shared(const float4* from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(shared_address(from)));
  return v;
}
