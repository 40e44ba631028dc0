"""WinRS: filter gradients by segments of dy, and the planner that cuts them."""
