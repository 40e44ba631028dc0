// Nested Winograd of split products, in launches: filter, input, products, output.
#pragma once

#include "filter.cuh"
#include "input.cuh"
#include "products.cuh"
#include "output.cuh"
