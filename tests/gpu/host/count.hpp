// Counts bank conflicts. The compiler's thread sanitizer calls a function at every access to memory;
// here these functions note what a warp's lanes do to shared memory at the same place of the program
// for the same time since they last met: on the GPU, that is one request.
//
// A request is served in phases of 32 lanes × 4, 16 × 8 or 8 × 16 bytes; a phase takes as many
// wavefronts as the most different words that it needs of one bank.
#pragma once
#include "engine.hpp"

namespace host {

// What is reported of a kernel's requests, summed over blocks.
struct Requests {
  int member, warp, write, bytes;
  long long requests, phases, wavefronts;
};
struct Member {
  const char* name;
  size_t offset, size;
};

#ifdef HOST_COUNT
extern int quiet;
void touch(const void* pointer, unsigned bytes, bool write, const void* site);
void count_begin(const Member* list, int count);
void count_cluster();
void count_end();
struct Quiet {  // what the engine itself does is not counted
  Quiet() { ++quiet; }
  ~Quiet() { --quiet; }
};
#else
inline void touch(const void*, unsigned, bool, const void*) {}
inline void count_begin(const Member*, int) {}
inline void count_cluster() {}
inline void count_end() {}
struct Quiet {
  Quiet() {}
};
#endif
}  // namespace host
