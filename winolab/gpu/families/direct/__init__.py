"""Direct forward and backward data on wgmma."""
