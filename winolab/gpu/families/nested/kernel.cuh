// Nested Winograd in launches: filter, input, products, output.
#pragma once

#include FILTER_FILE
#include INPUT_FILE
#include "products.cuh"
#include OUTPUT_FILE
