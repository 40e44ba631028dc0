"""From interpolation points to proved transforms and straight-line programs, all exact."""
