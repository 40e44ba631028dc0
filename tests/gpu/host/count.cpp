// What count.hpp declares.
#include "count.hpp"

#ifdef HOST_COUNT
namespace host {
constexpr unsigned TABLE = 1 << 18, SITES = 512, REPORTS = 4096, BANKS = 32;

struct Request {
  const void* site;
  unsigned block, warp, met, turn, lanes;
  unsigned short bytes, write;
  unsigned at[WARP];
};
struct Turn {  // how often a thread of a cluster has come to a site since it last met others
  const void* site;
  unsigned cluster, met, count;
};
Request* requests;
unsigned* asked;  // places of those of this cluster
unsigned request_count, cluster_number;
Turn* turns;  // [thread of the cluster][SITES]
int quiet;
Requests reports[REPORTS];
int report_count;
const Member* members;
int member_count;

[[noreturn]] void too_many(const char* what) {
  ++quiet;
  fail("too many %s", what);
}
// Not counted itself, and calls nothing that is.
#define HOST_BARE __attribute__((no_sanitize("thread")))
HOST_BARE unsigned mix(uint64_t a, uint64_t b) {
  return (unsigned)((a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu) >> 32);
}

HOST_BARE void touch(const void* pointer, unsigned bytes, bool write, const void* site) {
  if (!now || quiet) return;
  const Block& block = *now->block;
  const ptrdiff_t at = (const char*)pointer - block.memory - (ptrdiff_t)GUARD;
  if (at < 0 || (size_t)at >= block.bytes) return;
  const Dim3& size = machine.block;
  const unsigned thread = block.rank * size.x * size.y * size.z + now->index;
  unsigned i = mix((uint64_t)site, 0) % SITES;
  Turn* turn = turns + (size_t)thread * SITES;
  for (unsigned tries = 0; turn[i].site && turn[i].site != site; i = (i + 1) % SITES)
    if (++tries == SITES) too_many("places that access shared memory");
  turn += i;
  if (turn->site != site || turn->cluster != cluster_number || turn->met != now->met)
    *turn = {site, cluster_number, now->met, 0};
  const unsigned number = turn->count++, warp = now->index / WARP;
  unsigned r = mix((uint64_t)site, (uint64_t)now->met << 32 ^ number << 12 ^ block.rank << 6 ^ warp);
  for (;; ++r) {
    Request& q = requests[r % TABLE];
    if (!q.lanes) {
      if (request_count == TABLE / 4 * 3) too_many("requests: count a smaller problem");
      asked[request_count++] = r % TABLE;
      q.site = site, q.block = block.rank, q.warp = warp, q.met = now->met, q.turn = number;
      q.bytes = bytes, q.write = write;
    } else if (q.site != site || q.block != block.rank || q.warp != warp || q.met != now->met ||
               q.turn != number) {
      continue;
    }
    q.lanes |= 1u << now->index % WARP;
    q.at[now->index % WARP] = at;
    return;
  }
}

int wavefronts(const Request& q, int first, int last) {
  int most = 0;
  for (unsigned bank = 0; bank < BANKS; ++bank) {
    unsigned words[WARP];
    int different = 0;
    for (int lane = first; lane < last; ++lane) {
      if (!(q.lanes >> lane & 1)) continue;
      for (unsigned word = q.at[lane] / 4; word <= (q.at[lane] + q.bytes - 1) / 4; ++word) {
        if (word % BANKS != bank) continue;
        int i = 0;
        while (i < different && words[i] != word) ++i;
        if (i == different) words[different++] = word;
      }
    }
    if (different > most) most = different;
  }
  return most;
}

void report(const Request& q) {
  int lane = __builtin_ctz(q.lanes), member = 0;
  while (member < member_count && q.at[lane] - members[member].offset >= members[member].size)
    ++member;
  const Requests key = {member, (int)q.warp, q.write, q.bytes, 0, 0, 0};
  int i = 0;
  while (i < report_count && memcmp(&reports[i], &key, 4 * sizeof(int))) ++i;
  if (i == REPORTS) fail("too many kinds of requests");
  if (i == report_count) reports[report_count++] = key;
  const int step = q.bytes <= 4 ? 32 : q.bytes == 8 ? 16 : 8;
  ++reports[i].requests;
  for (int first = 0; first < WARP; first += step) {
    const int n = wavefronts(q, first, first + step);
    reports[i].phases += n > 0;
    reports[i].wavefronts += n;
  }
}

void count_begin(const Member* list, int count) {
  members = list, member_count = count, report_count = 0, quiet = 0;
  request_count = cluster_number = 0;
  const size_t threads = (size_t)machine.cluster * machine.block.size();
  requests = (Request*)calloc(TABLE, sizeof(Request));
  asked = (unsigned*)calloc(TABLE, sizeof(unsigned));
  turns = (Turn*)calloc(threads * SITES, sizeof(Turn));
  if (!requests || !asked || !turns) fail("no memory to count requests");
}
void count_cluster() {  // most clusters ask little: what they did not touch is left
  for (unsigned i = 0; i < request_count; ++i) {
    report(requests[asked[i]]);
    memset(&requests[asked[i]], 0, sizeof(Request));
  }
  request_count = 0;
  ++cluster_number;
}
void count_end() {
  free(requests);
  free(asked);
  free(turns);
  requests = nullptr, asked = nullptr, turns = nullptr;
}
#define HOST_TOUCH(name, bytes, write) \
  extern "C" HOST_BARE void __tsan_##name(void* at) { host::touch(at, bytes, write, __builtin_return_address(0)); }
#define HOST_TOUCHES(bytes)                   \
  HOST_TOUCH(read##bytes, bytes, false)       \
  HOST_TOUCH(write##bytes, bytes, true)       \
  HOST_TOUCH(read_write##bytes, bytes, true)  \
  HOST_TOUCH(unaligned_read##bytes, bytes, false) \
  HOST_TOUCH(unaligned_write##bytes, bytes, true) \
  HOST_TOUCH(unaligned_read_write##bytes, bytes, true)
}  // namespace host
HOST_TOUCHES(1)
HOST_TOUCHES(2)
HOST_TOUCHES(4)
HOST_TOUCHES(8)
HOST_TOUCHES(16)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
HOST_BARE void* __tsan_memcpy(void* to, const void* from, size_t n) {
  for (volatile char *t = (char*)to, *f = (char*)from; n; --n) *t++ = *f++;
  return to;
}
HOST_BARE void* __tsan_memset(void* to, int value, size_t n) {
  for (volatile char* t = (char*)to; n; --n) *t++ = (char)value;
  return to;
}
}

extern "C" int host_requests(host::Requests* to, int most) {
  const int count = host::report_count < most ? host::report_count : most;
  memcpy(to, host::reports, count * sizeof *to);
  return count;
}
#endif
