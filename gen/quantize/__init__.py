"""Float ONNX models -> quantised ones (QuantizeLinear and DequantizeLinear around plain operators), ONNX to ONNX.

`gen.quantize.quantize` has the stages in their order. What a tensor's range is, and which tensors have one, is decided
here; the nodes are put in by `onnxruntime.quantization`.
"""
