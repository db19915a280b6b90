"""Kinds of layers, each in a module of its own (`base` says what it answers)."""
