"""Golden NumPy layers, instruction-level simulator, time model and Verilator runner."""
