// What every kernel's library has beside the kernel, compiled once.
#include "count.cpp"
#include "engine.cpp"
#include "mma.cpp"
#include "pipeline.cpp"
