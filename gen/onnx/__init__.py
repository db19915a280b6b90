"""ONNX models -> the compiler's graph."""
