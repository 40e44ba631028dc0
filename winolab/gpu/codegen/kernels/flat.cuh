// Segments that are ranges of the flat sum over rows: every number of them balances.
#pragma once

#include "gradient_scheduler.cuh"

using Params = GradientParams;
using WorkTile = GradientWorkTile;
using Units = Map;
