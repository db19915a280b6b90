"""Mutated models, programs, configurations, inputs, packages: the commands that read them (see `tests.fuzz.worker`)."""
