"""Loads that gather runs of bytes."""
