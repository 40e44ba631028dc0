"""Filter gradients by direct products on wgmma."""
