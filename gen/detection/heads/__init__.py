"""Heads of detectors: what a model's outputs are, and what boxes they stand for; one module and one class a kind."""
