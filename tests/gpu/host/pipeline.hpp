// kernels/pipeline.cuh for the CPU: the same functions.
#pragma once
#include "cuda.hpp"

namespace host {
// An mbarrier's word holds MAGIC and an index into this table, so that an overwritten or
// uninitialised one is found out.
struct Barrier {
  unsigned expected, pending, completed;
  long long bytes;  // still to come in this phase
};
constexpr uint64_t MAGIC = 0xba44'1e50'0000'0000;
constexpr unsigned BARRIERS = 4096;
inline Barrier barriers[BARRIERS];

inline Barrier& barrier(const void* word) {
  uint64_t value;
  memcpy(&value, word, 8);
  const uint64_t index = value ^ MAGIC;
  if (index >= machine.barriers) fail("an mbarrier that is not initialised, or overwritten");
  return barriers[index];
}

inline void settle(Barrier& b) {
  if (b.pending || b.bytes) return;
  b.pending = b.expected;
  ++b.completed;
}

inline void arrive(Barrier& b, long long bytes) {
  if (!b.pending) fail("an arrival too many at an mbarrier of %u", b.expected);
  b.bytes += bytes;
  --b.pending;
  settle(b);
}

inline void bytes_arrived(Copy& copy) {
  Barrier& b = barrier(copy.barrier);
  b.bytes -= (long long)copy.bytes;
  settle(b);
}
}  // namespace host

// Of this block's shared memory: rank in the cluster, offset. 1024 as on Hopper, never 0.
inline unsigned shared_address(const void* pointer) {
  const ptrdiff_t offset = (const char*)pointer - host::now->block->shared();
  if (offset < 0 || (size_t)offset >= host::now->block->bytes)
    host::fail("an address outside this block's shared memory");
  return host::now->block->rank << 24 | (unsigned)(offset + 1024);
}

inline void barrier_init(unsigned long long* barrier, int arrivals) {
  shared_address(barrier);
  unsigned& count = host::machine.barriers;
  if (count == host::BARRIERS) host::fail("more than %u mbarriers", count);
  host::barriers[count] = {(unsigned)arrivals, (unsigned)arrivals, 0, 0};
  *barrier = host::MAGIC | count++;
}

inline void barrier_arrive(unsigned long long* barrier) {
  shared_address(barrier);
  host::arrive(host::barrier(barrier), 0);
}

inline void barrier_arrive_expect(unsigned long long* barrier, int bytes) {
  shared_address(barrier);
  host::arrive(host::barrier(barrier), bytes);
}

inline void barrier_wait(unsigned long long* barrier, unsigned parity) {
  host::Barrier& b = host::barrier(barrier);
  host::wait({&b.completed, parity, true, "barrier_wait", barrier});
}

inline void bulk_copy(float* shared, const float* global, int bytes, unsigned long long* barrier) {
  shared_address(shared);
  shared_address((const char*)shared + bytes - 1);
  if (bytes % 16 || (uintptr_t)shared % 16 || (uintptr_t)global % 16)
    host::fail("a bulk copy of %d bytes that is not 16-byte aligned", bytes);
  host::Copy* copy = (host::Copy*)malloc(sizeof(host::Copy));
  *copy = {(char*)shared, (const char*)global,   (size_t)bytes, host::bytes_arrived,
           barrier,       host::machine.copies};
  host::machine.copies = copy;
  memset(shared, host::POISON, bytes);  // until it has arrived
}

template <int REGISTERS>
void registers_grow() {}
template <int REGISTERS>
void registers_shrink() {}
inline void barrier_init_fence() {}

template <int THREADS>
void consumers_sync() {
  host::meet(host::now->block->named[1], THREADS, "consumers_sync");
}

inline int cluster_rank() { return host::now->block->rank; }
inline void cluster_sync() {
  host::meet(host::machine.cluster_meeting, host::machine.cluster_live, "cluster_sync");
}
inline float cluster_load(const float* pointer, int rank) { return *host::in_block(pointer, rank); }

// Copies of one thread, in groups; they are made when they are waited for.
template <int BYTES>
void copy_async(void* shared, const void* global, bool inside) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "what cp.async copies");
  shared_address((const char*)shared + BYTES - 1);
  if ((uintptr_t)shared % BYTES || (inside && (uintptr_t)global % BYTES))
    host::fail("a copy of %d bytes that is not aligned", BYTES);
  host::ThreadCopy& copy = host::now->copies.add();
  copy.to = shared, copy.from = inside ? global : nullptr, copy.bytes = BYTES;
  memset(shared, host::POISON, BYTES);
}
inline void copy_async_commit() { ++host::now->copies.group; }
template <int PENDING>
void copy_async_wait() {
  host::now->copies.finish(PENDING, [](const host::ThreadCopy& copy) {
    if (copy.from) memcpy(copy.to, copy.from, copy.bytes);
    else memset(copy.to, 0, copy.bytes);
  });
}
