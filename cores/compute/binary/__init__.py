"""The binary unit, in the compute engine or as an engine of its own."""
