"""Layers of few channels that are summed, on mma.sync: patches of x in shared memory."""
