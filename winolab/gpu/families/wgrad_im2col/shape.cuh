// What a block and a step are: of filter gradients whose copies walk positions.
#pragma once

#ifdef TF32
constexpr int KC = 32, PLANE = KC * 64;  // 16-bit units of 32 channels in FP32
constexpr int GROUPS_M = BO / 64, GROUPS_K = 1;
#else
constexpr int KC = 64, PLANE = KC * 64;  // elements of 64 channels
constexpr int GROUPS_M = BO == 64 ? 1 : BO == 192 ? 3 : 2, GROUPS_K = BO == 64 ? 2 : 1;
#endif

constexpr int GROUPS = GROUPS_M * GROUPS_K, CONSUMERS = 128 * GROUPS, THREADS = CONSUMERS + 32;
constexpr int HELD = BO / 64 / GROUPS_M;  // times 64 output channels of a warpgroup
#ifdef TF32
constexpr int PLANES_M = BO / 32, PLANES_N = BI / 32;
#else
constexpr int PLANES_M = BO / 64, PLANES_N = (BI + 63) / 64;
#endif

constexpr int STAGE_BYTES = 2 * PLANE * (PLANES_M + PLANES_N);
static_assert(HELD * GROUPS_M * 64 == BO && BI % 32 == 0 && BI <= 256, "block shape");
