"""Grouped layers of few channels a group, in 16 bits on mma.sync: patches of x in shared memory."""
