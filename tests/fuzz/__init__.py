"""Mutated models, programs, configurations and inputs on the commands that read them (see `tests.fuzz.worker`)."""
