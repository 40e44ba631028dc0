"""Filters of one tap that few positions meet, on FFMA units."""
