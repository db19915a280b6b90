"""The load engine: memory to input buffer, weight ring and side ring."""
