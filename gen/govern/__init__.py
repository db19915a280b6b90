"""Levels for the driver's governor, and a battery that is emptied by what it chooses (docs/governor.md)."""
