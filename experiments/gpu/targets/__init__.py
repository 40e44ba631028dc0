"""What the kernels were meant to reach, held against measured rows."""
