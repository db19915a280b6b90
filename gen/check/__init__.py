"""Comparing a model with onnxruntime, layer by layer."""
