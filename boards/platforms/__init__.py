"""Amaranth platforms of boards that amaranth-boards has not; imported where a board is built."""
