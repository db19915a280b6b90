"""An MLP of `gen.stochastic` as a quantised ONNX model, for the compiler."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gen.stochastic.network import Layer

__all__ = ["onnx_model"]

_OPSET, _IR_VERSION = 17, 8
#: Of all activations: only ratios of scales count.
_SCALE = 1 / 127


def onnx_model(layers: Sequence[Layer], score_scale: float) -> bytes:
    """QDQ model ``x`` (N, K) float of 0 to 1 -> ``scores`` (N, classes): the same integers as the network's.

    Zero points are 0; ``score_scale``: sums of the last layer that are one step of its int8 result.
    """
    values: dict[str, Any] = {"zero": np.int8(0), "no_offset": np.int32(0), "scale": np.float32(_SCALE)}
    nodes = []

    def pair(source: str, scale: str, name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, "zero"], [f"{name}.q"], f"{name}.Quantize"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", scale, "zero"], [name], f"{name}.Dequantize"))
        return name

    value = pair("x", "scale", "x.dq")
    for number, layer in enumerate(layers, 1):
        last, name = number == len(layers), f"fc{number}"
        # A step of the result, of which the input's steps are multiples.
        factor = 1 / score_scale if last else layer.scale
        values |= {f"{name}.weight": layer.weights.reshape(len(layer.bias), -1),
                   f"{name}.bias": layer.bias.astype(np.int32),
                   f"{name}.scale": np.float32(factor), f"{name}.bias_scale": np.float32(_SCALE * np.float32(factor))}
        for kind, scale, zero in (("weight", "scale", "zero"), ("bias", "bias_scale", "no_offset")):
            nodes.append(helper.make_node("DequantizeLinear", [f"{name}.{kind}", f"{name}.{scale}", zero],
                                          [f"{name}.{kind}.dq"], f"{name}.{kind}.Dequantize"))
        nodes.append(helper.make_node("Gemm", [value, f"{name}.weight.dq", f"{name}.bias.dq"], [f"{name}.sum"], name,
                                      transB=1))
        value = f"{name}.sum"
        if not last:
            nodes.append(helper.make_node("Relu", [value], [f"{name}.relu"], f"{name}.Relu"))
            value = f"{name}.relu"
        value = pair(value, "scale", "scores" if last else f"{name}.dq")
    inputs, classes = layers[0].weights[0].size, len(layers[-1].bias)
    graph = helper.make_graph(
        nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", inputs])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", classes])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in values.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))
