"""What the command shows, from Python: plans, predictions, bounds, costs, tolerances, accuracy."""
