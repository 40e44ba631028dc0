// The entry of a compiled source, included last; the table `host_kernels` comes before it.
#pragma once
#include "cuda.hpp"

namespace host {

inline void prepare(Block& b, Dim3 index, unsigned rank, size_t dynamic_bytes) {
  const Dim3 size = machine.block;
  b.index = index;
  b.rank = rank;
  b.dynamic_bytes = b.bytes = dynamic_bytes;
  b.live = size.size();
  memset(b.memory, POISON, SHARED_LIMIT + 2 * GUARD);
  memset(b.statics, 0, sizeof b.statics);
  for (Meeting& meeting : b.named) meeting = Meeting();
  for (unsigned w = 0; w * WARP < size.size(); ++w) {
    b.warps[w] = Warp();
    const unsigned lanes = size.size() - w * WARP;
    b.warps[w].live = lanes < WARP ? (1u << lanes) - 1 : ~0u;
  }
  for (unsigned t = 0; t < size.size(); ++t) {
    Fiber& f = b.fibers[t];
    f.block = &b;
    f.index = t;
    f.started = f.done = false;
    f.met = 0;
    f.waiting = Waiting();
    f.copies.count = f.copies.group = f.products.count = f.products.group = 0;
    f.thread = {t % size.x, t / size.x % size.y, t / size.x / size.y};
  }
}

template <class T>
T* array(size_t count) {  // of zeros
  T* pointer = (T*)calloc(count, sizeof(T));
  if (!pointer) fail("no memory");
  return pointer;
}

inline void launch(const Kernel& kernel, size_t dynamic_bytes) {
  Machine& m = machine;
  const unsigned threads = m.block.size();
  m.cluster = kernel.cluster.size();
  m.entry = kernel.entry;
  if (kernel.cluster.x != m.cluster) fail("clusters are expected along x alone");
  if (m.grid.x % m.cluster) fail("%u blocks are no whole clusters of %u", m.grid.x, m.cluster);
  if (!threads || threads > 1024 || threads > kernel.max_threads)
    fail("%u threads; the kernel allows %u", threads, kernel.max_threads);
  if (!m.grid.size() || m.grid.y > 65535 || m.grid.z > 65535) fail("grid out of range");
  if (dynamic_bytes > SHARED_LIMIT) fail("%zu bytes of shared memory", dynamic_bytes);
  m.stack_count = (size_t)threads * m.cluster;
  m.stacks = (char*)mmap(nullptr, m.stack_count * STACK, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m.stacks == MAP_FAILED) fail("no memory for %zu stacks", m.stack_count);
  m.blocks = array<Block>(m.cluster);
  for (unsigned b = 0; b < m.cluster; ++b) {
    m.blocks[b].memory = (char*)aligned_alloc(1024, SHARED_LIMIT + 2 * GUARD);
    m.blocks[b].warps = array<Warp>((threads + WARP - 1) / WARP);
    m.blocks[b].fibers = array<Fiber>(threads);
    for (unsigned t = 0; t < threads; ++t)
      m.blocks[b].fibers[t].stack = m.stacks + ((size_t)b * threads + t) * STACK;
  }
  count_begin(kernel.members, kernel.member_count);
  for (unsigned i = 0; i < m.grid.size(); i += m.cluster) {
    for (unsigned b = 0; b < m.cluster; ++b) {
      const unsigned at = i + b;
      prepare(m.blocks[b], {at % m.grid.x, at / m.grid.x % m.grid.y, at / m.grid.x / m.grid.y}, b,
              dynamic_bytes);
    }
    m.cluster_meeting = Meeting();
    m.barriers = 0;
    m.cluster_live = threads * m.cluster;
    run_cluster();
    count_cluster();
    for (unsigned b = 0; b < m.cluster; ++b) check_guards(m.blocks[b]);
  }
}

inline void clean_up() {
  Machine& m = machine;
  count_end();
  while (m.copies) {
    Copy* copy = m.copies;
    m.copies = copy->next;
    free(copy);
  }
  for (unsigned b = 0; m.blocks && b < m.cluster; ++b) {
    free(m.blocks[b].memory);
    free(m.blocks[b].warps);
    free(m.blocks[b].fibers);
  }
  free(m.blocks);
  m.blocks = nullptr;
  if (m.stacks) munmap(m.stacks, m.stack_count * STACK);
  m.stacks = nullptr;
}

}  // namespace host

// What the compiler's checks of undefined behaviour call.
namespace host {
struct Place {
  const char* file;
  unsigned line, column;
};
[[noreturn]] inline void undefined(const char* what, const void* data) {
  const Place& place = *(const Place*)data;
  if (!now) abort();
  fail("%s at %s:%u", what, place.file, place.line);
}
}  // namespace host
#define HOST_UNDEFINED(name, what) \
  extern "C" void __ubsan_handle_##name(void* data, ...) { host::undefined(what, data); }
HOST_UNDEFINED(type_mismatch_v1, "a pointer that is null or not aligned")
HOST_UNDEFINED(out_of_bounds, "an index outside its array")
HOST_UNDEFINED(shift_out_of_bounds, "a shift too far")
HOST_UNDEFINED(divrem_overflow, "division by zero")

extern "C" int host_launch(int kernel, const unsigned* grid, const unsigned* block, size_t bytes,
                           void** arguments, uint64_t seed, char* message, size_t message_size) {
  host::Machine& m = host::machine;
  m.message = message;
  m.message_size = message_size;
  m.grid = {grid[0], grid[1], grid[2]};
  m.block = {block[0], block[1], block[2]};
  m.arguments = arguments;
  m.random = seed * 0x9e3779b97f4a7c15u;
  const int failed = setjmp(m.failed);
  if (!failed) host::launch(host_kernels[kernel], bytes);
  host::clean_up();
  return failed;
}

#ifdef HOST_COUNT
extern "C" int host_requests(host::Requests* to, int most) {
  const int count = host::report_count < most ? host::report_count : most;
  memcpy(to, host::reports, count * sizeof *to);
  return count;
}
#endif
