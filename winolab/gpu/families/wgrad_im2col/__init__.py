"""Filter gradients of 16 bits whose copies walk x and dy position by position."""
