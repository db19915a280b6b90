"""The compute engine: loops, multiplier array, pool unit."""
