// codegen/kernels/tensor_map.cuh for the CPU: the same functions.
#pragma once
#include "pipeline.hpp"

// As winolab.gpu.tensor_map.TensorMap packs it.
struct alignas(64) TensorMap {
  const char* address;
  long long strides[4];
  int sizes[5], box[5], size, plain, steps[5];
  char unused[128 - 8 - 32 - 68];
};
static_assert(sizeof(TensorMap) == 128, "the driver's");
inline unsigned swizzled(unsigned at) { return at ^ (at >> 7 & 3) << 4; }

// Every 16-byte unit of a box is a copy of its own.
inline void box_copy(void* shared, const TensorMap& map, int c, int w, int h, int d, int n,
                     unsigned long long* barrier) {
  static const char zeros[16] = {};
  const int first[5] = {c, w, h, d, n}, units = map.box[0] * map.size / 16;
  const unsigned base = own_address(shared) - 1024;
  if (base % 128) host::fail("a box that does not begin at a multiple of 128 bytes");
  if ((uintptr_t)map.address % 16) host::fail("a tensor map's address that is not aligned");
  for (int i = 0; i < 4; ++i)
    if (map.strides[i] % 16) host::fail("a tensor map's stride that is not a multiple of 16");
  for (int i = 0; i < 5; ++i)
    if (map.steps[i] < 1 || map.steps[i] > (i ? 8 : 1) || (map.box[i] - 1) * map.steps[i] >= 256)
      host::fail("a box of %d elements in steps of %d", map.box[i], map.steps[i]);
  if (!map.plain && units != 4 && units != 8) host::fail("a box of %d bytes a pixel", units * 16);
  if (!map.plain && units == 8 && base % 1024) host::fail("a box that does not begin at a multiple of 1024 bytes");
  char* const block = (char*)shared - base;
  unsigned at = base;
  for (int i4 = 0; i4 < map.box[4]; ++i4)
    for (int i3 = 0; i3 < map.box[3]; ++i3)
      for (int i2 = 0; i2 < map.box[2]; ++i2)
        for (int i1 = 0; i1 < map.box[1]; ++i1)
          for (int unit = 0; unit < units; ++unit, at += 16) {
            const int places[5] = {first[0] + unit * 16 / map.size, first[1] + i1 * map.steps[1],
                                   first[2] + i2 * map.steps[2], first[3] + i3 * map.steps[3],
                                   first[4] + i4 * map.steps[4]};
            const char* from = map.address + (long long)places[0] * map.size;
            bool inside = true;
            for (int i = 0; i < 5; ++i) {
              inside &= (unsigned)places[i] < (unsigned)map.sizes[i];
              if (i) from += places[i] * map.strides[i - 1];
            }
            const long long left = (long long)(map.sizes[0] - places[0]) * map.size;
            if (inside && left < 16) host::fail("channels that 16 bytes do not divide");
            const unsigned to = map.plain ? at : units == 8 ? at ^ (at >> 7 & 7) << 4 : swizzled(at);
            host::start_copy(block + to, inside ? from : zeros, 16, barrier);
          }
}
