"""Filter gradients of layers of few channels on one side, on FFMA units."""
