"""Input buffer and accumulators."""
