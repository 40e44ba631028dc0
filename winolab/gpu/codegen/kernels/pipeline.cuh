// Shared-memory pipeline: mbarriers and asynchronous copies of compute capability 8.0; bulk copies,
// register reallocation and clusters of 9.0.
// PTX ISA sections 9.7.9.25 (cp.async.bulk), 9.7.13.15 (mbarrier), 9.7.19 (setmaxnreg).
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(unsigned long long* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}

__device__ __forceinline__ void barrier_arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Arrives and announces bytes that a bulk copy will still bring.
__device__ __forceinline__ void barrier_arrive_expect(unsigned long long* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

#if __CUDA_ARCH__ >= 900
#define MBARRIER_WAIT "mbarrier.try_wait"
#else
#define MBARRIER_WAIT "mbarrier.test_wait"  // does not sleep
#endif
__device__ __forceinline__ void barrier_wait(unsigned long long* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: " MBARRIER_WAIT ".parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Between a thread's last read of shared memory and the arrival after which a bulk copy overwrites
// it: copies belong to another proxy, and an arrival overtakes reads that are still in flight
// (without, up to every call on an H100 had some wrong outputs).
__device__ __forceinline__ void reads_done() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Until the launch before this one is over and what it wrote can be read; at once where this one
// did not ask to begin earlier (driver.Kernel).
__device__ __forceinline__ void launch_before_done() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on the next launch may begin, if it asks to.
__device__ __forceinline__ void next_launch_may_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// After barrier_init, before other threads, copies or blocks of the cluster use the barriers.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Copies contiguous bytes (a multiple of 16, 16-byte aligned) and counts them off on the barrier.
__device__ __forceinline__ void bulk_copy(float* shared, const float* global, int bytes,
                                          unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// REGISTERS = 0: as many as the launch gave; compute capability 8.x has no other choice.
template <int REGISTERS>
__device__ __forceinline__ void registers_grow() {
  if constexpr (REGISTERS > 0)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void registers_shrink() {
  if constexpr (REGISTERS > 0)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Barrier 1 joins the consumer warps alone; barrier 0 is __syncthreads. Not aligned, and neither is
// cluster_sync: lanes may come one by one from a wait or a branch that they left one by one.
template <int THREADS>
__device__ __forceinline__ void consumers_sync() {
  asm volatile("barrier.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// Barrier 2 joins the producer warps alone.
template <int THREADS>
__device__ __forceinline__ void producers_sync() {
  asm volatile("barrier.sync 2, %0;" ::"n"(THREADS) : "memory");
}

// Barrier 3 joins the warps that finish outputs.
template <int THREADS>
__device__ __forceinline__ void storers_sync() {
  asm volatile("barrier.sync 3, %0;" ::"n"(THREADS) : "memory");
}

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// Reads the float at this block's shared address, in the block of that rank of the cluster.
__device__ __forceinline__ float cluster_load(const float* pointer, int rank) {
  unsigned remote;
  float v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(shared_address(pointer)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(remote) : "memory");
  return v;
}

// Copies 16 or 4 bytes to this block's shared memory, asynchronously; zeros where not inside.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool inside) {
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(inside ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(BYTES), "r"(inside ? BYTES : 0)
                 : "memory");
}

// The same of 8 or 16 bytes to OFFSET bytes behind the shared address, an immediate; inside: any bit.
template <int BYTES, int OFFSET>
__device__ __forceinline__ void copy_async_at(void* shared, const void* global, unsigned inside) {
  if constexpr (BYTES == 16)
    asm volatile(
        "{\n.reg .pred outside;\nsetp.eq.u32 outside, %2, 0;\n"
        "cp.async.cg.shared.global [%0 + %3], [%1], 16, outside;\n}" ::"r"(shared_address(shared)),
        "l"(global), "r"(inside), "n"(OFFSET)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred outside;\nsetp.eq.u32 outside, %2, 0;\n"
        "cp.async.ca.shared.global [%0 + %4], [%1], %3, outside;\n}" ::"r"(shared_address(shared)),
        "l"(global), "r"(inside), "n"(BYTES), "n"(OFFSET)
        : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Arrives at the barrier once all copies that this thread has started are there.
__device__ __forceinline__ void copy_async_arrive(unsigned long long* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Until at most PENDING of this thread's committed groups of copies are unfinished.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Where the block of that rank in the cluster has what this block has at a shared pointer.
template <class T>
__device__ __forceinline__ T* cluster_pointer(T* pointer, int rank) {
  unsigned long long remote;
  asm("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(pointer), "r"(rank));
  return reinterpret_cast<T*>(remote);
}

// Arrival and wait with release and acquire across the cluster: for plain reads and stores of
// other blocks' shared memory.
__device__ __forceinline__ void barrier_release_cluster(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}

__device__ __forceinline__ void barrier_acquire_cluster(unsigned long long* barrier,
                                                        unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// A load that stays in the order of the program, so that those of neighbouring vectors overlap: the
// compiler would load each where it is needed, and once more rather than keep it.
__device__ __forceinline__ float4 load_shared(const float4* from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(shared_address(from)));
  return v;
}
