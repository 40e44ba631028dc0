// Launches that are replayed without Python: what winolab/gpu/runtime/replay.py does.
//
// Arrays come as where[1 … 4]: both operands, the result, the workspace; where[0] is the stream.

#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include <torch/csrc/utils/pybind.h>

namespace winolab {

using Word = uint64_t;
using Where = std::array<Word, 5>;
constexpr Word NOWHERE = std::numeric_limits<Word>::max();

// A call of the driver's or of a library's, with 64-bit arguments where these lie.
struct Launch {
  void* function;
  std::vector<const Word*> arguments;

  int operator()() const {
    const auto& a = arguments;
    using W = Word;
    if (a.size() == 4)
      return reinterpret_cast<int (*)(W, W, W, W)>(function)(*a[0], *a[1], *a[2], *a[3]);
    return reinterpret_cast<int (*)(W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W)>(function)(
        *a[0], *a[1], *a[2], *a[3], *a[4], *a[5], *a[6], *a[7], *a[8], *a[9], *a[10], *a[11],
        *a[12], *a[13], *a[14], *a[15]);
  }
};

// Where an array's address is written, so far from the array's first element: a word, or a tensor
// map that the driver's cuTensorMapReplaceAddress changes.
struct Patch {
  int array;
  void* place;
  Word beyond;
  bool map;
};

// A plan's launches with memory of their own, which one call at a time may use.
struct Tape {
  std::vector<Launch> launches;
  std::vector<Patch> patches;
  std::vector<Word*> streams;
  int (*replace)(void*, Word) = nullptr;
  pybind11::object owner;  // of the memory: the Recording
  Where held{};
  std::mutex mutex;

  // The driver's status, and in `failed` whose: -1 is a tensor map's.
  int replay(const Where& where, int& failed) {
    std::lock_guard<std::mutex> lock(mutex);
    failed = -1;
    if (held[0] != where[0])
      for (Word* stream : streams) *stream = where[0];
    for (const Patch& patch : patches) {
      if (held[patch.array] == where[patch.array]) continue;
      Word address = where[patch.array] + patch.beyond;
      if (!patch.map) {
        *static_cast<Word*>(patch.place) = address;
      } else if (int status = replace(patch.place, address)) {
        held.fill(NOWHERE);
        return status;
      }
    }
    held = where;
    for (const Launch& launch : launches) {
      ++failed;
      if (int status = launch()) return status;
    }
    return 0;
  }
};

}  // namespace winolab
