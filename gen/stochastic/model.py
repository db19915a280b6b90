"""A network of `gen.stochastic` as a quantised ONNX model, for the compiler."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .backbone import Product
from .network import Layer

__all__ = ["model_inputs", "onnx_model"]

_OPSET, _IR_VERSION = 17, 8
#: Of all activations: only ratios of scales count.
_SCALE = 1 / 127


def model_inputs(x: np.ndarray) -> np.ndarray:
    """int8 (n, H, W, C) -> float32 (n, C, H, W) of 0 to 1 as the model takes them, (n, C) of single pixels."""
    channels_first = np.moveaxis(x, 3, 1).astype(np.float32) / 127
    return channels_first if x.shape[1:3] != (1, 1) else channels_first.reshape(x.shape[0], x.shape[3])


def onnx_model(layers: Sequence[Layer], score_scale: float, name: str = "mlp") -> bytes:
    """QDQ model ``x`` (N, C, H, W) float of 0 to 1, (N, C) of single pixels -> ``scores`` (N, classes): the same
    integers as the network's.

    Zero points are 0; ``score_scale``: sums of the last layer that are one step of its int8 result.
    """
    return _Model(layers, score_scale).build(name)


class _Model:
    def __init__(self, layers: Sequence[Layer], score_scale: float) -> None:
        self.layers, self.score_scale = layers, score_scale
        self.values: dict[str, Any] = {"zero": np.int8(0), "no_offset": np.int32(0), "scale": np.float32(_SCALE)}
        self.nodes: list[onnx.NodeProto] = []
        #: Convolutions and matrix products so far.
        self.counts = {"conv": 0, "fc": 0}

    def build(self, name: str) -> bytes:
        value, flat = self.pair("x", "x.dq"), _is_pixel(self.layers[0].product)
        for layer in self.layers:
            if not flat and _is_matrix(layer.product):
                value, flat = self.node("Flatten", [value], "flat"), True
            value = self.layer(layer, value)
        shape = self.layers[0].product.input
        sizes = [shape.channels] if _is_pixel(self.layers[0].product) else [shape.channels, shape.height, shape.width]
        graph = helper.make_graph(
            self.nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *sizes])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", len(self.layers[-1].bias)])],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in self.values.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))

    def node(self, operator: str, sources: Sequence[str], name: str, result: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, sources, [result or name], f"{name}.{operator}", **attributes))
        return result or name

    def pair(self, source: str, name: str) -> str:
        """Rounded to int8."""
        rounded = self.node("QuantizeLinear", [source, "scale", "zero"], name, f"{name}.q")
        return self.node("DequantizeLinear", [rounded, "scale", "zero"], name)

    def layer(self, layer: Layer, source: str) -> str:
        matrix, last = _is_matrix(layer.product), layer is self.layers[-1]
        kind = "fc" if matrix else "conv"
        self.counts[kind] += 1
        name = f"{kind}{self.counts[kind]}"
        # (O, taps, C) -> (O, C, taps)
        weights = np.swapaxes(layer.weights, 1, 2)
        shape = (-1,) if matrix else (layer.product.input.channels, *layer.product.kernel)
        # A step of the result, of which the input's steps are multiples.
        factor = np.float32(1 / self.score_scale if last else layer.scale)
        self.values |= {f"{name}.weight": np.ascontiguousarray(weights.reshape(len(weights), *shape)),
                        f"{name}.bias": layer.bias.astype(np.int32), f"{name}.scale": factor,
                        f"{name}.bias_scale": np.float32(_SCALE * factor)}
        operands = [self.node("DequantizeLinear", [f"{name}.{part}", f"{name}.{scale}", zero], f"{name}.{part}.dq")
                    for part, scale, zero in (("weight", "scale", "zero"), ("bias", "bias_scale", "no_offset"))]
        options: dict[str, Any] = {"transB": 1} if matrix else {
            "kernel_shape": layer.product.kernel, "pads": [layer.product.padding] * 4,
            "strides": [layer.product.stride] * 2}
        self.nodes.append(helper.make_node("Gemm" if matrix else "Conv", [source, *operands], [f"{name}.sum"], name,
                                           **options))
        if last:
            return self.pair(f"{name}.sum", "scores")
        value = self.pair(self.node("Relu", [f"{name}.sum"], name, f"{name}.relu"), f"{name}.dq")
        size = layer.product.pool
        if size == 1:
            return value
        pooled = self.node("MaxPool", [value], f"{name}.pool", kernel_shape=[size, size], strides=[size, size])
        return self.pair(pooled, f"{name}.pool.dq")


def _is_pixel(product: Product) -> bool:
    return (product.input.height, product.input.width) == (1, 1)


def _is_matrix(product: Product) -> bool:
    return product.padding == 0 and product.kernel == (product.input.height, product.input.width)
