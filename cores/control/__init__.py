"""Instruction fetch, tokens, registers, start and stop."""
