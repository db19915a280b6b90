"""Detectors: what is in pictures and where, as files say it and as models answer it, and how well the two agree."""
