"""Winograd F(2x2, 3x3) for dense 3x3 layers of stride 1 (docs/winograd.md)."""
