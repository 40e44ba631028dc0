"""Filter gradients of grouped layers of few channels a group, on mma.sync: patches of x and dy in
shared memory."""
