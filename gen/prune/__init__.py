"""Pruning of ONNX models, float or quantised: blocks of weights, and whole channels."""
