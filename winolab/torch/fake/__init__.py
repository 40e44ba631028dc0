"""Calls of a model that compute nothing, and what they leave behind."""
