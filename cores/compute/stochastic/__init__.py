"""Units of stochastic computing: shared sequences, streams, and six ways to add their products (docs/stochastic.md)."""
