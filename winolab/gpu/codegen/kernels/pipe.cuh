// Where a thread is in a ring of stages.
#pragma once

// The stage, and the parity of its barriers' phase.
template <int STAGES>
struct Pipe {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
};
