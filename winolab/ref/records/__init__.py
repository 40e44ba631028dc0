"""The record table: the best algorithms known for F(n, r), and the search that finds them."""
