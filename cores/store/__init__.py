"""The store engine: accumulators to activations, and where they go."""
