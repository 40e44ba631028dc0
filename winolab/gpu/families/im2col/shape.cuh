// What a block and a step are: of direct products whose copies walk positions.
#pragma once

#ifdef TF32
constexpr int KC = 32, ROW_BYTES = 128, PLANE = KC * ROW_BYTES;  // of 32 channels in FP32; of 32 such rows
#else
constexpr int KC = 64, ROW_BYTES = 128, PLANE = KC * ROW_BYTES;  // of 64 channels; of 64 such rows
#endif

constexpr int CONSUMERS = 2 * BN, THREADS = CONSUMERS + 32;
constexpr int STAGE_BYTES = ROW_BYTES * (BN + BM);
static_assert(BN % 64 == 0 && BM % (ROTATED ? 64 : 32) == 0 && BM <= 256, "block shape");
