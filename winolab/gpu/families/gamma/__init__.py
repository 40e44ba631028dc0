"""What Γ on Tensor Cores shares: all but a family's block shapes, main kernel and its time."""
