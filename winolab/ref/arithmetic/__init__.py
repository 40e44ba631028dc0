"""Arithmetics that one text of an algorithm runs in: exact, and simulated floating point."""
