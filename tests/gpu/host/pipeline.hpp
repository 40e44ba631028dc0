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

Barrier& barrier(const void* word);
void arrive(Barrier& b, long long bytes);
// A copy that arrives later, counted off on the barrier.
Copy& start_copy(void* to, const void* from, size_t bytes, void* barrier);
void start_bulk_copy(void* to, const void* from, int bytes, unsigned long long* barrier);
void copy_async(void* shared, const void* global, int bytes, bool inside);
void copy_async_wait(int pending);
}  // namespace host

// Of shared memory of this block or, by a pointer into another of the cluster, of that one: rank,
// offset. 1024 as on Hopper, never 0.
unsigned shared_address(const void* pointer);
unsigned own_address(const void* pointer);

void barrier_init(unsigned long long* barrier, int arrivals);
void barrier_arrive(unsigned long long* barrier);
void barrier_arrive_expect(unsigned long long* barrier, int bytes);
void barrier_wait(unsigned long long* barrier, unsigned parity);
void copy_async_arrive(unsigned long long* barrier);
void bulk_copy(float* shared, const float* global, int bytes, unsigned long long* barrier);

inline void reads_done() {}
inline void launch_before_done() {}
inline void next_launch_may_begin() {}
// Time flies: nobody waits for it.
inline long long clock64() {
  static long long now;
  return now += 1ll << 32;
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
  host::copy_async(shared, global, BYTES, inside);
}
// The arrival counts at once, but the barrier's phase does not end before the copies have landed.
template <int BYTES, int OFFSET>
void copy_async_at(void* shared, const void* global, unsigned inside) {
  copy_async<BYTES>((char*)shared + OFFSET, global, inside != 0);
}
inline void copy_async_commit() { ++host::now->ordered->copies.group; }
template <int PENDING>
void copy_async_wait() {
  host::copy_async_wait(PENDING);
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
inline float4 load_shared(const float4* from) { return *from; }
