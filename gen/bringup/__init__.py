"""A first day with a board: what dumps of a machine mean."""
