"""Golden model of stochastic computing, bit by bit and fast (docs/stochastic.md)."""
