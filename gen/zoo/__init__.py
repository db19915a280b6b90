"""Float ONNX models of known networks with seeded weights, one module a family."""
