"""Maxima of 2x2 results as they are stored."""
