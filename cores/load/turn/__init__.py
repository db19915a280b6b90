"""Boxes that become weights."""
