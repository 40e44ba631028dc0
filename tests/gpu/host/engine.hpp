// Runs CUDA kernels on the CPU. Every thread of a block is a fiber; a cluster's blocks run together,
// clusters one after another. A fiber gives way only where it synchronizes, so that a run is
// deterministic; a seed changes the order of the fibers, and a right kernel's result does not
// change with it.
//
// What is found: deadlock (with who waits where), barriers used before they are initialised or
// overwritten, writes outside a block's shared memory, and, because shared memory begins as NaN and
// a bulk copy's target is NaN until the copy arrives, as late as possible, whatever is read too
// early. Undefined behaviour that the compiler checks (alignment, array bounds) ends the launch too.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

// From fiber to fiber: the compiler's own way where it has one, in a fifth of the time.
#ifdef __x86_64__
typedef void* Context[5];
#define HOST_SET(place) __builtin_setjmp(place)
#define HOST_JUMP(place) __builtin_longjmp(place, 1)
#else
typedef jmp_buf Context;
#define HOST_SET(place) _setjmp(place)
#define HOST_JUMP(place) _longjmp(place, 1)
#endif

namespace host {

constexpr int WARP = 32, NAMED = 16, STATICS = 16;
constexpr size_t STACK = 512 << 10, GUARD = 1024, SHARED_LIMIT = 227 << 10;
constexpr unsigned char POISON = 0xff;  // NaN as float and half, -1 as an integer

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  unsigned size() const { return x * y * z; }
};

[[noreturn]] void fail(const char* format, ...);

// What a fiber waits for: another count, or a count whose last bit is not `value`.
struct Waiting {
  const unsigned* count = nullptr;
  unsigned value = 0;
  bool parity = false;
  const char* what = "";
  const void* at = nullptr;
  bool over() const { return !count || (parity ? (*count & 1) != value : *count != value); }
};

// Threads meet: the last of `expected` lets all pass.
struct Meeting {
  unsigned arrived = 0, expected = 0, passed = 0;
};

// What a thread has started and not waited for, in groups as cp.async and wgmma have them. It is
// done when it is waited for: as late as possible.
template <class One, int MOST>
struct Later {
  One list[MOST];
  int count = 0, group = 0;

  One& add() {
    if (count == MOST) fail("more than %d asynchronous operations of a thread", MOST);
    list[count].group = group;
    return list[count++];
  }
  // Calls `run` of all but the last `pending` committed groups, and of what is not committed.
  template <class F>
  void finish(int pending, F run) {
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      if (list[i].group + pending >= group) list[kept++] = list[i];
      else run(list[i]);
    }
    count = kept;
  }
};

struct ThreadCopy {
  void* to;
  const void* from;  // nullptr: zeros
  int bytes, group;
};

// A wgmma: d (64 × n) = A B + (accumulate ? d : 0); this thread's registers, descriptors.
struct Product {
  float* d;
  unsigned registers[4];
  unsigned long long a, b;
  int n, group;
  bool bf16, a_registers, a_mn, b_mn, accumulate;
  bool tf32 = false;  // A in registers, B by rows of 128 bytes: half as deep
};

struct Ordered {
  Later<ThreadCopy, 160> copies;
  Later<Product, 96> products;
};

// Small: the scheduler goes round all of them. What it reads each time lies together, in waiting.
struct Block;
struct Fiber {
  Block* block;
  Dim3 thread;
  int index;  // within the block
  unsigned met = 0;  // how often
  bool started = false, done = false;
  Waiting* waiting;
  Ordered* ordered;
  Context at;
  char* stack;
};

struct Warp {
  Meeting meeting;
  unsigned live = 0;           // lanes
  uint64_t slot[WARP] = {};    // of values that lanes exchange
  uint64_t asleep = 0;         // left out until that round
};

struct Block {
  Dim3 index;
  unsigned rank = 0, live = 0;  // in the cluster; threads
  int votes = 0;                // of threads that count some
  char* memory = nullptr;       // shared: guard, dynamic, statics, guard
  size_t dynamic_bytes = 0, bytes = 0;
  size_t statics[STATICS] = {};  // offsets of static arrays, + 1
  Meeting named[NAMED];
  Warp* warps = nullptr;
  Fiber* fibers = nullptr;
  char* shared() const { return memory + GUARD; }
};

struct Copy {
  char* to;
  const char* from;
  size_t bytes;
  void (*arrived)(Copy&);
  void* barrier;
  Copy* next;
};

struct Member;  // of the struct of a kernel's shared memory
struct Kernel {
  const char* name;
  void (*entry)(void** arguments);
  Dim3 cluster;
  unsigned max_threads;
  const Member* members;
  int member_count;
};

struct Machine {
  Dim3 grid, block;
  unsigned cluster = 1;
  Block* blocks = nullptr;
  Fiber* fibers = nullptr;  // of the cluster's blocks, in their order
  Waiting* waiting = nullptr;
  Ordered* ordered = nullptr;
  Meeting cluster_meeting;
  unsigned cluster_live = 0;
  unsigned barriers = 0;  // initialised in this cluster
  Copy* copies = nullptr;  // in flight
  uint64_t random = 0;     // 0: round robin, copies as late as possible
  void (*entry)(void**) = nullptr;
  void** arguments = nullptr;
  Context scheduler;
  jmp_buf failed;
  ucontext_t from;
  char* message = nullptr;
  size_t message_size = 0;
  char* stacks = nullptr;
  size_t stack_count = 0;
};

extern Machine machine;
extern Fiber* now;

// Lets other fibers run; comes back when `now->waiting` is over.
void give_way();
// Lets others run, without a wait for anything.
void give_turn();
void wait(const Waiting& waiting);
// Arrives at a meeting of `expected` threads; ends when all of them have arrived.
void meet(Meeting& m, unsigned expected, const char* what);

inline Warp& warp() { return now->block->warps[now->index / WARP]; }

// A block's static array number `id`: poisoned like all shared memory.
template <class T>
T& static_shared(int id) {
  Block& b = *now->block;
  if (id >= STATICS) fail("more than %d static shared arrays", STATICS);
  if (!b.statics[id]) {
    const size_t offset = (b.bytes + 127) / 128 * 128;
    if (offset + sizeof(T) > SHARED_LIMIT) fail("static shared memory exceeds the limit");
    b.bytes = offset + sizeof(T);
    b.statics[id] = offset + 1;
  }
  return *reinterpret_cast<T*>(b.shared() + b.statics[id] - 1);
}

// The pointer at the same place of shared memory in the block of that rank of the cluster.
template <class T>
T* in_block(T* pointer, unsigned rank) {
  const ptrdiff_t offset = (const char*)pointer - now->block->shared();
  if (offset < 0 || (size_t)offset >= now->block->bytes) fail("an address outside shared memory");
  if (rank >= machine.cluster) fail("rank %u in a cluster of %u", rank, machine.cluster);
  if (!machine.blocks[rank].live) fail("shared memory of block %u, which has ended", rank);
  return (T*)(machine.blocks[rank].shared() + offset);
}

// Starts a kernel from an array of pointers to its arguments, as the driver does.
template <int... I>
struct Indices {};
template <int N, int... I>
struct Count : Count<N - 1, N - 1, I...> {};
template <int... I>
struct Count<0, I...> {
  using type = Indices<I...>;
};
template <class... A, int... I>
void call(void (*kernel)(A...), void** arguments, Indices<I...>) {
  kernel(*static_cast<A*>(arguments[I])...);
}
template <class... A>
void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, typename Count<sizeof...(A)>::type());
}

}  // namespace host

// What a kernel's translation unit has: see hosted.translate.
extern const host::Kernel host_kernels[];
