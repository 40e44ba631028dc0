// What a translated kernel begins with, compiled once for all of them.
#pragma once
#include "cuda.hpp"
#include "mma.hpp"
#include "mma_tf32.hpp"
#include "multicast.hpp"
#include "pairs.hpp"
#include "pipeline.hpp"
#include "cluster_copy.hpp"
#include "im2col_map.hpp"
