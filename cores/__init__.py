"""Amaranth components of the NPU and the formats they share; knows nothing of ``gen``."""
