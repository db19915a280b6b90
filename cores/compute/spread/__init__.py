"""Spread words: groups of output lanes on different pixels, reduction lanes on different taps."""
