"""Filter gradients whose copies walk x and dy position by position."""
