"""Quantised models of the zoo's networks, as onnxruntime's quantiser makes them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from gen.zoo.builder import pictures

__all__ = ["quantise"]


class _Pictures(CalibrationDataReader):
    def __init__(self, arrays: np.ndarray) -> None:
        self._arrays: Iterator[np.ndarray] = iter(arrays)

    def get_next(self) -> dict[str, np.ndarray] | None:
        array = next(self._arrays, None)
        return None if array is None else {"image": array[None]}


def quantise(model: onnx.ModelProto, folder: Path, rng: np.random.Generator) -> Path:
    """A model of the zoo in QDQ form, calibrated on pictures: int8, weights by channel.

    Batch norms are folded where onnxruntime does it. Convolutions of signs stay float, and what is read by a Sign has
    the zero point 0.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "folded.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    folded = onnx.load(folder / "folded.onnx")
    signs = {node.output[0]: node.input[0] for node in folded.graph.node if node.op_type == "Sign"}
    # A maximum has the scale of what it is taken of, so that is what has to be told.
    pooled = {node.output[0]: node.input[0] for node in folded.graph.node if node.op_type == "MaxPool"}
    symmetric = {"quant_type": QuantType.QInt8, "symmetric": True}
    _, *shape = (dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    quantize_static(
        folded, folder / "quantised.onnx", _Pictures(pictures(rng, 2, tuple(shape))), quant_format=QuantFormat.QDQ,
        per_channel=True, activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        nodes_to_exclude=[node.name for node in folded.graph.node if node.input and node.input[0] in signs],
        extra_options={"TensorQuantOverrides": {pooled.get(name, name): [symmetric] for name in signs.values()}})
    return folder / "quantised.onnx"
