"""Mutated models, programs, configurations, inputs, packages and documents, names and special files: the commands that
read them (see `tests.fuzz.worker`).
"""
