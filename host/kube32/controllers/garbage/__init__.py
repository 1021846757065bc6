"""Garbage collection by owner references, for every kind that the API serves."""
