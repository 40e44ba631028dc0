"""How much results may err: limits that hold for all data, for most, and what keeps to them."""
