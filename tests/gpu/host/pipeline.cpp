// What pipeline.hpp, tensor_map.hpp and im2col_map.hpp declare.
#include "pipeline.hpp"

#include "im2col_map.hpp"

namespace host {
Barrier barriers[BARRIERS];

Barrier& barrier(const void* word) {
  const Quiet quiet;
  uint64_t value;
  memcpy(&value, word, 8);
  const uint64_t index = value ^ MAGIC;
  if (index >= machine.barriers) fail("an mbarrier that is not initialised, or overwritten");
  return barriers[index];
}

void settle(Barrier& b) {
  if (b.pending || b.bytes) return;
  b.pending = b.expected;
  ++b.completed;
}

void arrive(Barrier& b, long long bytes) {
  if (!b.pending) fail("an arrival too many at an mbarrier of %u", b.expected);
  b.bytes += bytes;
  --b.pending;
  settle(b);
}

void bytes_arrived(Copy& copy) {
  Barrier& b = barrier(copy.barrier);
  b.bytes -= (long long)copy.bytes;
  settle(b);
}
}  // namespace host

unsigned shared_address(const void* pointer) {
  for (unsigned rank = 0; rank < host::machine.cluster; ++rank) {
    const host::Block& block = host::machine.blocks[rank];
    const ptrdiff_t offset = (const char*)pointer - block.shared();
    if (offset < 0 || (size_t)offset >= block.bytes) continue;
    if (!block.live) host::fail("shared memory of block %u, which has ended", rank);
    return rank << 24 | (unsigned)(offset + 1024);
  }
  host::fail("an address outside shared memory");
}

unsigned own_address(const void* pointer) {
  const unsigned address = shared_address(pointer);
  if (address >> 24 != host::now->block->rank) host::fail("an address in another block");
  return address;
}

void barrier_init(unsigned long long* barrier, int arrivals) {
  own_address(barrier);
  unsigned& count = host::machine.barriers;
  if (count == host::BARRIERS) host::fail("more than %u mbarriers", count);
  host::barriers[count] = {(unsigned)arrivals, (unsigned)arrivals, 0, 0};
  const host::Quiet quiet;
  *barrier = host::MAGIC | count++;
}

void barrier_arrive(unsigned long long* barrier) {
  own_address(barrier);
  host::arrive(host::barrier(barrier), 0);
}

void barrier_arrive_expect(unsigned long long* barrier, int bytes) {
  own_address(barrier);
  host::arrive(host::barrier(barrier), bytes);
}

void barrier_wait(unsigned long long* barrier, unsigned parity) {
  host::Barrier& b = host::barrier(barrier);
  host::wait({&b.completed, parity, true, "barrier_wait", barrier});
}

namespace host {
Copy& start_copy(void* to, const void* from, size_t bytes, void* barrier) {
  Copy* copy = (Copy*)malloc(sizeof(Copy));
  *copy = {(char*)to, (const char*)from, bytes, bytes_arrived, barrier};
  copy->next = machine.copies;
  machine.copies = copy;
  memset(to, POISON, bytes);  // until it has arrived
  return *copy;
}

void start_bulk_copy(void* to, const void* from, int bytes, unsigned long long* barrier) {
  shared_address((const char*)to + bytes - 1);
  if (bytes % 16 || (uintptr_t)to % 16 || (uintptr_t)from % 16)
    fail("a bulk copy of %d bytes that is not 16-byte aligned", bytes);
  start_copy(to, from, bytes, barrier);
}
}  // namespace host

void bulk_copy(float* shared, const float* global, int bytes, unsigned long long* barrier) {
  own_address(shared);
  own_address((const char*)shared + bytes - 1);
  host::start_bulk_copy(shared, global, bytes, barrier);
}

namespace host {
void copy_async(void* shared, const void* global, int bytes, bool inside) {
  own_address((const char*)shared + bytes - 1);
  if ((uintptr_t)shared % bytes || (inside && (uintptr_t)global % bytes))
    fail("a copy of %d bytes that is not aligned", bytes);
  ThreadCopy& copy = now->ordered->copies.add();
  copy.to = shared, copy.from = inside ? global : nullptr, copy.bytes = bytes;
  memset(shared, POISON, bytes);
}

void copy_async_wait(int pending) {
  now->ordered->copies.finish(pending, [](const ThreadCopy& copy) {
    if (copy.from) memcpy(copy.to, copy.from, copy.bytes);
    else memset(copy.to, 0, copy.bytes);
  });
}
}  // namespace host

void copy_async_arrive(unsigned long long* barrier) {
  static const char zeros[16] = {};
  own_address(barrier);
  host::Barrier& b = host::barrier(barrier);
  host::now->ordered->copies.finish(-1, [&](const host::ThreadCopy& started) {
    host::start_copy(started.to, started.from ? started.from : zeros, started.bytes, barrier);
    b.bytes += started.bytes;
  });
  host::arrive(b, 0);
}


void box_copy(void* shared, const TensorMap& map, int c, int w, int h, int d, int n,
              unsigned long long* barrier) {
  static const char zeros[16] = {};
  const int first[5] = {c, w, h, d, n}, units = map.box[0] * map.size / 16;
  const unsigned base = own_address(shared) - 1024;
  if (base % 128) host::fail("a box that does not begin at a multiple of 128 bytes");
  if ((uintptr_t)map.address % 16) host::fail("a tensor map's address that is not aligned");
  if (map.box[0] * map.size % 16) host::fail("a box that is no multiple of 16 bytes wide");
  for (int i = 0; i < 5; ++i)
    if (map.box[i] < 1 || map.box[i] > 256)
      host::fail("a box of %d elements along a dimension", map.box[i]);
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

void host::positions_copy(void* shared, const TensorMap& map, int rank, const Positions& from,
                          unsigned long long* barrier) {
  static const char zeros[16] = {};
  const unsigned base = own_address(shared) - 1024;
  if (rank != map.rank) fail("a copy of %d dimensions by a map of %d", rank, map.rank);
  if (base % 1024) fail("positions that do not begin at a multiple of 1024 bytes");
  if ((uintptr_t)map.address % 16) fail("a tensor map's address that is not aligned");
  for (int i = 0; i < 4; ++i)
    if (map.strides[i] % 16) fail("a tensor map's stride that is not a multiple of 16");
  if (map.box[0] * map.size != 128 || map.box[1] < 1 || map.box[1] > 1024)
    fail("a copy of %d channels of %d positions", map.box[0], map.box[1]);
  const int most = rank == 4 ? 128 : 16, farthest = rank == 4 ? 256 : 32;  // of corners, of taps
  int place[4] = {from.w, from.h, from.d, from.n}, first[3], last[3];
  const int tap[3] = {from.tap_w, from.tap_h, from.tap_d};
  for (int i = 0; i < 3; ++i) {
    first[i] = map.lower[i], last[i] = map.sizes[i + 1] - 1 + map.upper[i];
    if (rank == 4 && i == 2) {
      if (map.sizes[3] != 1 || place[2] || tap[2]) fail("a depth of four dimensions");
      continue;
    }
    const int low = map.lower[i], up = map.upper[i];
    if (low < -most || low >= most || up < -most || up >= most) fail("corners at %d, %d", low, up);
    if (tap[i] < 0 || tap[i] >= farthest) fail("a tap at %d", tap[i]);
    if (map.steps[i + 1] < 1 || map.steps[i + 1] > 8) fail("steps of %d", map.steps[i + 1]);
    if (place[i] < first[i] || place[i] > last[i]) fail("a first position at %d", place[i]);
  }
  char* const block = (char*)shared - base;
  unsigned at = base;
  for (int position = 0; position < map.box[1]; ++position) {
    const char* element = map.address + place[3] * map.strides[3];
    bool there = (unsigned)place[3] < (unsigned)map.sizes[4];
    for (int i = 0; i < 3; ++i) {
      const int found = place[i] + tap[i];
      there &= (unsigned)found < (unsigned)map.sizes[i + 1];
      element += found * map.strides[i];
    }
    for (int unit = 0; unit < 8; ++unit, at += 16) {
      const int c = from.c + unit * 16 / map.size;
      const bool inside = there && (unsigned)c < (unsigned)map.sizes[0];
      if (inside && (map.sizes[0] - c) * map.size < 16) fail("channels that 16 bytes do not divide");
      start_copy(block + (at ^ (at >> 7 & 7) << 4),
                 inside ? element + (long long)c * map.size : zeros, 16, barrier);
    }
    for (int i = 0; i < 4; ++i) {
      place[i] += i < 3 ? map.steps[i + 1] : 1;
      if (i == 3 || place[i] <= last[i]) break;
      place[i] = first[i];
    }
  }
}
