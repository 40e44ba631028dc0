"""Requests that are cut: into pieces of an algorithm, into images that no batch changes."""
