"""Second stages with multipliers of their own."""
