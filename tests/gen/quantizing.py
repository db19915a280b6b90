"""Quantised models, and what onnxruntime makes of models."""

import numpy as np
import onnx
import onnxruntime as ort

from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import Quantized, quantize

__all__ = ["outputs_of", "quantized"]


def outputs_of(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """By onnxruntime as a user runs it."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])


def quantized(model: onnx.ModelProto, x: np.ndarray, **options: object) -> Quantized:
    return quantize(model, {"x": x}, QuantizeOptions(**options))  # type: ignore[arg-type]
