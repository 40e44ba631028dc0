// codegen/kernels/pipeline.cuh for the CPU: the same functions.
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
  const Quiet quiet;
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

// Of shared memory of this block or, by a pointer into another of the cluster, of that one: rank,
// offset. 1024 as on Hopper, never 0.
inline unsigned shared_address(const void* pointer) {
  for (unsigned rank = 0; rank < host::machine.cluster; ++rank) {
    const host::Block& block = host::machine.blocks[rank];
    const ptrdiff_t offset = (const char*)pointer - block.shared();
    if (offset < 0 || (size_t)offset >= block.bytes) continue;
    if (!block.live) host::fail("shared memory of block %u, which has ended", rank);
    return rank << 24 | (unsigned)(offset + 1024);
  }
  host::fail("an address outside shared memory");
}

inline unsigned own_address(const void* pointer) {
  const unsigned address = shared_address(pointer);
  if (address >> 24 != host::now->block->rank) host::fail("an address in another block");
  return address;
}

inline void barrier_init(unsigned long long* barrier, int arrivals) {
  own_address(barrier);
  unsigned& count = host::machine.barriers;
  if (count == host::BARRIERS) host::fail("more than %u mbarriers", count);
  host::barriers[count] = {(unsigned)arrivals, (unsigned)arrivals, 0, 0};
  const host::Quiet quiet;
  *barrier = host::MAGIC | count++;
}

inline void barrier_arrive(unsigned long long* barrier) {
  own_address(barrier);
  host::arrive(host::barrier(barrier), 0);
}

inline void barrier_arrive_expect(unsigned long long* barrier, int bytes) {
  own_address(barrier);
  host::arrive(host::barrier(barrier), bytes);
}

inline void reads_done() {}
inline void launch_before_done() {}
inline void next_launch_may_begin() {}
// Time flies: nobody waits for it.
inline long long clock64() {
  static long long now;
  return now += 1ll << 32;
}

inline void barrier_wait(unsigned long long* barrier, unsigned parity) {
  host::Barrier& b = host::barrier(barrier);
  host::wait({&b.completed, parity, true, "barrier_wait", barrier});
}

namespace host {
// A copy that arrives later, counted off on the barrier.
inline Copy& start_copy(void* to, const void* from, size_t bytes, void* barrier) {
  Copy* copy = (Copy*)malloc(sizeof(Copy));
  *copy = {(char*)to, (const char*)from, bytes, bytes_arrived, barrier};
  copy->next = machine.copies;
  machine.copies = copy;
  memset(to, POISON, bytes);  // until it has arrived
  return *copy;
}

inline void start_bulk_copy(void* to, const void* from, int bytes, unsigned long long* barrier) {
  shared_address((const char*)to + bytes - 1);
  if (bytes % 16 || (uintptr_t)to % 16 || (uintptr_t)from % 16)
    fail("a bulk copy of %d bytes that is not 16-byte aligned", bytes);
  start_copy(to, from, bytes, barrier);
}
}  // namespace host

inline void bulk_copy(float* shared, const float* global, int bytes, unsigned long long* barrier) {
  own_address(shared);
  own_address((const char*)shared + bytes - 1);
  host::start_bulk_copy(shared, global, bytes, barrier);
}

template <int REGISTERS>
void registers_grow() {}
template <int REGISTERS>
void registers_shrink() {}
inline void barriers_ready() {}

template <int THREADS>
void consumers_sync() {
  host::meet(host::now->block->named[1], THREADS, "consumers_sync");
}

template <int THREADS>
void producers_sync() {
  host::meet(host::now->block->named[2], THREADS, "producers_sync");
}

template <int THREADS>
void storers_sync() {
  host::meet(host::now->block->named[3], THREADS, "storers_sync");
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
  own_address((const char*)shared + BYTES - 1);
  if ((uintptr_t)shared % BYTES || (inside && (uintptr_t)global % BYTES))
    host::fail("a copy of %d bytes that is not aligned", BYTES);
  host::ThreadCopy& copy = host::now->copies.add();
  copy.to = shared, copy.from = inside ? global : nullptr, copy.bytes = BYTES;
  memset(shared, host::POISON, BYTES);
}
// The arrival counts at once, but the barrier's phase does not end before the copies have landed.
template <int BYTES, int OFFSET>
void copy_async_at(void* shared, const void* global, unsigned inside) {
  copy_async<BYTES>((char*)shared + OFFSET, global, inside != 0);
}
inline void copy_async_arrive(unsigned long long* barrier) {
  static const char zeros[16] = {};
  own_address(barrier);
  host::Barrier& b = host::barrier(barrier);
  host::now->copies.finish(-1, [&](const host::ThreadCopy& started) {
    host::start_copy(started.to, started.from ? started.from : zeros, started.bytes, barrier);
    b.bytes += started.bytes;
  });
  host::arrive(b, 0);
}
inline void copy_async_commit() { ++host::now->copies.group; }
template <int PENDING>
void copy_async_wait() {
  host::now->copies.finish(PENDING, [](const host::ThreadCopy& copy) {
    if (copy.from) memcpy(copy.to, copy.from, copy.bytes);
    else memset(copy.to, 0, copy.bytes);
  });
}

template <class T>
T* cluster_pointer(T* pointer, int rank) {
  return host::in_block(pointer, rank);
}
inline void barrier_release_cluster(unsigned long long* barrier) {
  shared_address(barrier);
  host::arrive(host::barrier(barrier), 0);
}
inline void barrier_acquire_cluster(unsigned long long* barrier, unsigned parity) {
  barrier_wait(barrier, parity);
}
inline void store_async(void* shared, uint2 v, unsigned long long* barrier) {
  if (shared_address(shared) >> 24 != shared_address(barrier) >> 24 || (uintptr_t)shared % 8)
    host::fail("st.async and its barrier in different blocks, or not aligned");
  host::Copy& copy = host::start_copy(shared, nullptr, sizeof v, barrier);
  copy.from = copy.value;
  memcpy(copy.value, &v, sizeof v);
}
inline float4 load_shared(const float4* from) { return *from; }
