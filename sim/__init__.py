"""Golden NumPy layers, instruction-level simulator, cycle model and Verilator runner."""
