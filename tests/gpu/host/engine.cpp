// Fibers and their scheduler, launches, and what the compiler's checks call: see engine.hpp.
#include "engine.hpp"

#include "count.hpp"

namespace host {

Machine machine;
Fiber* now = nullptr;
const unsigned NEVER = 0;  // what a fiber that is done waits for: it does not change

[[noreturn]] void fail(const char* format, ...) {
  va_list list;
  va_start(list, format);
  int n = 0;
  if (now)
    n = snprintf(machine.message, machine.message_size, "block (%u,%u,%u) thread %d: ",
                 now->block->index.x, now->block->index.y, now->block->index.z, now->index);
  vsnprintf(machine.message + n, machine.message_size - n, format, list);
  va_end(list);
  now = nullptr;
  longjmp(machine.failed, 1);
}

unsigned random_below(unsigned n) {
  uint64_t& s = machine.random;
  s ^= s << 13, s ^= s >> 7, s ^= s << 17;
  return (unsigned)(s >> 33) % n;
}

// Lets other fibers run; comes back when `now->waiting` is over.
__attribute__((noinline)) void give_way() {
  Fiber* self = now;
  if (!HOST_SET(self->at)) HOST_JUMP(machine.scheduler);
}

// Lets others run, without a wait for anything.
void give_turn() {
  *now->waiting = Waiting();
  give_way();
}

__attribute__((noinline)) void wait(const Waiting& waiting) {
  if (waiting.over()) {
    if (machine.random && random_below(2)) give_turn();
    return;
  }
  *now->waiting = waiting;
  give_way();
}

void pass(Meeting& m) {
  m.arrived = 0;
  ++m.passed;
}

// Arrives at a meeting of `expected` threads; ends when all of them have arrived.
void meet(Meeting& m, unsigned expected, const char* what) {
  if (m.arrived && m.expected != expected)
    fail("%s of %u threads, but %u threads that came before count %u", what, expected, m.arrived,
         m.expected);
  m.expected = expected;
  ++now->met;
  const unsigned passed = m.passed;
  if (++m.arrived >= expected) pass(m);
  wait({&m.passed, passed, false, what, &m});
}

void leave(Fiber& f) {
  f.done = true;
  *f.waiting = {&NEVER, NEVER, false, "nothing", nullptr};
  Block& b = *f.block;
  Warp& w = b.warps[f.index / WARP];
  w.live &= ~(1u << f.index % WARP);
  --b.live;
  --machine.cluster_live;
  // Those who wait for all threads wait no more for this one.
  if (b.named[0].arrived && b.named[0].arrived >= b.live) pass(b.named[0]);
  Meeting& c = machine.cluster_meeting;
  if (c.arrived && c.arrived >= machine.cluster_live) pass(c);
  if (w.meeting.arrived && w.meeting.arrived >= (unsigned)__builtin_popcount(w.live))
    pass(w.meeting);
}

// A fiber runs a thread of every cluster in turn: its context is made once a launch.
void start() {
  for (;;) {
    machine.entry(machine.arguments);
    leave(*now);
    give_way();
  }
}

__attribute__((noinline)) void resume(Fiber& f) {
  *f.waiting = Waiting();
  now = &f;
  if (!HOST_SET(machine.scheduler)) {
    if (f.started) HOST_JUMP(f.at);
    f.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = f.stack;
    context.uc_stack.ss_size = STACK - f.index % 61 * 1088;  // else all share a few cache lines
    context.uc_link = nullptr;
    makecontext(&context, start, 0);
    setcontext(&context);
  }
  now = nullptr;
}

void complete(Copy** link) {
  Copy* copy = *link;
  *link = copy->next;
  memcpy(copy->to, copy->from, copy->bytes);
  copy->arrived(*copy);
  free(copy);
}

void check_guards(const Block& b) {
  for (size_t i = 0; i < GUARD; ++i)
    if ((unsigned char)b.memory[i] != POISON ||
        (unsigned char)b.memory[GUARD + b.bytes + i] != POISON)
      fail("block (%u,%u,%u) wrote outside its %zu bytes of shared memory", b.index.x, b.index.y,
           b.index.z, b.bytes);
}

[[noreturn]] void deadlock() {
  char text[600];
  int n = 0;
  for (unsigned b = 0; b < machine.cluster && n < 500; ++b) {
    Block& block = machine.blocks[b];
    const Waiting* last = nullptr;
    for (unsigned t = 0; t < machine.block.size() && n < 500; ++t) {
      const Fiber& f = block.fibers[t];
      const Waiting& on = *f.waiting;
      if (f.done || (last && last->at == on.at && last->what == on.what)) continue;
      last = &on;
      const char* at = (const char*)on.at;
      const bool inside = at >= block.shared() && at < block.shared() + block.bytes;
      n += snprintf(text + n, sizeof text - n, "; block %u thread %u on in %s", block.index.x, t,
                    on.what);
      if (inside)
        n += snprintf(text + n, sizeof text - n, " at shared + %td, parity %u", at - block.shared(),
                      on.value);
    }
  }
  fail("deadlock: nobody can go on%s", text);
}

// Disturbs a round of the scheduler: copies arrive or not, a warp falls behind for a while.
void disturb(uint64_t round) {
  Machine& m = machine;
  for (Copy** link = &m.copies; *link;)
    if (random_below(2)) complete(link);
    else link = &(*link)->next;
  if (random_below(4)) return;
  Block& block = m.blocks[random_below(m.cluster)];
  block.warps[random_below((m.block.size() + WARP - 1) / WARP)].asleep = round + random_below(200);
}

void run_cluster() {
  Machine& m = machine;
  const unsigned all = m.block.size() * m.cluster;
  const unsigned strides[] = {1, 5, 7, 11, 13, 17, 19, 23};
  for (uint64_t round = 0; m.cluster_live; ++round) {
    unsigned first = 0, stride = 1;
    if (m.random) {
      disturb(round);
      first = random_below(all);
      do stride = strides[random_below(8)];
      while (all % stride == 0 && stride != 1);
    }
    bool progress = false, asleep = false;
    const unsigned back = all - stride % all;
    for (unsigned i = 0, at = first; i < all; ++i, at += at >= back ? -back : all - back) {
      if (!m.waiting[at].over()) continue;
      Fiber& f = m.fibers[at];
      if (f.block->warps[f.index / WARP].asleep > round) {
        asleep = true;
        continue;
      }
      resume(f);
      progress = true;
    }
    if (progress || asleep) continue;
    if (!m.copies) deadlock();
    while (m.copies) complete(&m.copies);
  }
  if (m.copies) fail("the block ended before its copies arrived");
}

// The block before it in `b` left its bytes and guards alone to be poisoned again.
void prepare(Block& b, Dim3 index, unsigned rank, size_t dynamic_bytes) {
  const Dim3 size = machine.block;
  b.index = index;
  b.rank = rank;
  memset(b.memory, POISON, b.bytes + 2 * GUARD);
  b.dynamic_bytes = b.bytes = dynamic_bytes;
  b.live = size.size();
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
    f.done = false;
    f.met = 0;
    *f.waiting = Waiting();
    Ordered& o = *f.ordered;
    if (f.started) o.copies.count = o.copies.group = o.products.count = o.products.group = 0;
    f.thread = {t % size.x, t / size.x % size.y, t / size.x / size.y};
  }
}

template <class T>
T* array(size_t count) {  // of zeros
  T* pointer = (T*)calloc(count, sizeof(T));
  if (!pointer) fail("no memory");
  return pointer;
}

void launch(const Kernel& kernel, size_t dynamic_bytes) {
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
  m.fibers = array<Fiber>(m.stack_count);
  m.waiting = array<Waiting>(m.stack_count);
  m.ordered = array<Ordered>(m.stack_count);
  for (size_t i = 0; i < m.stack_count; ++i) {
    m.fibers[i].waiting = m.waiting + i;
    m.fibers[i].ordered = m.ordered + i;
    m.fibers[i].stack = m.stacks + i * STACK;
  }
  for (unsigned b = 0; b < m.cluster; ++b) {
    m.blocks[b].memory = (char*)aligned_alloc(1024, SHARED_LIMIT + 2 * GUARD);
    memset(m.blocks[b].memory, POISON, SHARED_LIMIT + 2 * GUARD);
    m.blocks[b].warps = array<Warp>((threads + WARP - 1) / WARP);
    m.blocks[b].fibers = m.fibers + (size_t)b * threads;
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

void clean_up() {
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
  }
  free(m.blocks), free(m.fibers), free(m.waiting), free(m.ordered);
  m.blocks = nullptr, m.fibers = nullptr, m.waiting = nullptr, m.ordered = nullptr;
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
[[noreturn]] void undefined(const char* what, const void* data) {
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

