"""Eight-bit operands: scales and grids of INT8 and FP8, exact sums by residues, proven bounds."""
