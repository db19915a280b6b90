"""What everything else reads: instruction set, register map, numbers of the arithmetic."""
