"""Direct forward and backward data of few positions, whose copies walk these (9.0)."""
