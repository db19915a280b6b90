"""Loads that transform tiles."""
