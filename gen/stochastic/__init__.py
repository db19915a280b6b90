"""Networks of stochastic dot products: topology, training, integer layers, accuracy, cycles (docs/stochastic.md)."""
