"""The trained digits network as ONNX: in float32, and quantised to int8 with QuantizeLinear/DequantizeLinear pairs."""

from dataclasses import dataclass, field

import numpy as np
import onnx
from network import CLASSES, IMAGE_SIZE, LAYERS, Conv, Parameters
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Range", "float_model", "int8_model"]

_OPSET = 17
_IR_VERSION = 8  # the first onnxruntime releases that know opset 17 read this


@dataclass(frozen=True)
class Range:
    """Smallest and largest value of a tensor over the calibration images."""

    low: float
    high: float

    @property
    def scale(self) -> np.float32:
        """Of asymmetric int8. The range always holds zero, so that padding is exact."""
        return np.float32((max(self.high, 0.0) - min(self.low, 0.0)) / 255 or 1.0)

    @property
    def zero_point(self) -> np.int8:
        return np.int8(np.clip(np.round(-128 - min(self.low, 0.0) / self.scale), -128, 127))


@dataclass
class _Builder:
    nodes: list = field(default_factory=list)
    constants: list = field(default_factory=list)

    def constant(self, name: str, value) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, inputs: list[str], output: str, name: str = "", **attributes) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=name or f"{output}.{op}", **attributes))
        return output

    def quantized(self, tensor: str, found: Range) -> str:
        """``tensor`` through int8 and back."""
        scale = self.constant(f"{tensor}.scale", found.scale)
        zero_point = self.constant(f"{tensor}.zero_point", found.zero_point)
        self.node("QuantizeLinear", [tensor, scale, zero_point], f"{tensor}.q")
        return self.node("DequantizeLinear", [f"{tensor}.q", scale, zero_point], f"{tensor}.dq")

    def model(self, name: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, IMAGE_SIZE, IMAGE_SIZE])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION,
                                  producer_name="examples/digits")
        onnx.checker.check_model(model, full_check=True)
        return model


def _attributes(layer: Conv) -> dict:
    return {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": [layer.pad] * 4,
            "group": layer.inputs if layer.depthwise else 1}


def float_model(parameters: Parameters) -> onnx.ModelProto:
    b = _Builder()
    x = "image"
    for layer in LAYERS:
        inputs = [b.constant(f"{layer.name}.{kind}", value)
                  for kind, value in zip(("weights", "bias"), parameters[layer.name], strict=True)]
        x = b.node("Conv", [x, *inputs], f"{layer.name}.conv", layer.name, **_attributes(layer))
        if layer.add:
            x = b.node("Add", [x, layer.add], f"{layer.name}.sum")
        x = b.node("Relu", [x], layer.name)
    b.node("GlobalAveragePool", [x], "mean", "mean")
    b.node("Flatten", ["mean"], "features")
    inputs = [b.constant(f"classifier.{kind}", value)
              for kind, value in zip(("weights", "bias"), parameters["classifier"], strict=True)]
    b.node("Gemm", ["features", *inputs], "logits", "classifier", transB=1)
    return b.model("digits")


def _int8_parameters(b: _Builder, name: str, weights: np.ndarray, bias: np.ndarray,
                     input_scale: np.float32) -> list[str]:
    """Weights symmetric with a scale for each output channel; bias int32 with the product of the scales."""
    flat = np.abs(weights.reshape(len(weights), -1)).max(1)
    scales = (np.maximum(flat, 1e-6) / 127).astype(np.float32)
    column = scales.reshape(-1, *[1] * (weights.ndim - 1))
    values = np.clip(np.round(weights / column), -127, 127).astype(np.int8)
    bias_scales = (scales * input_scale).astype(np.float32)
    names = []
    for kind, value, scale in (("weights", values, scales),
                               ("bias", np.round(bias / bias_scales.astype(np.float64)).astype(np.int32), bias_scales)):
        inputs = [b.constant(f"{name}.{kind}", value), b.constant(f"{name}.{kind}.scale", scale)]
        names.append(b.node("DequantizeLinear", inputs, f"{name}.{kind}.dq", axis=0))
    return names


def int8_model(parameters: Parameters, ranges: dict[str, Range]) -> onnx.ModelProto:
    """``ranges`` holds `network.forward`'s tensors, measured on training images."""
    b = _Builder()
    x, scale = b.quantized("image", ranges["input"]), ranges["input"].scale
    for layer in LAYERS:
        inputs = _int8_parameters(b, layer.name, *parameters[layer.name], scale)
        y = b.node("Conv", [x, *inputs], f"{layer.name}.conv", layer.name, **_attributes(layer))
        if layer.add:
            y = b.quantized(y, ranges[f"{layer.name}.conv"])
            y = b.node("Add", [y, f"{layer.add}.dq"], f"{layer.name}.sum")
        b.node("Relu", [y], layer.name)
        x, scale = b.quantized(layer.name, ranges[layer.name]), ranges[layer.name].scale
    b.node("GlobalAveragePool", [x], "mean", "mean")
    b.node("Flatten", [b.quantized("mean", ranges["mean"])], "features")
    inputs = _int8_parameters(b, "classifier", *parameters["classifier"], ranges["mean"].scale)
    b.node("Gemm", ["features", *inputs], "scores", "classifier", transB=1)
    b.quantized("scores", ranges["logits"])
    b.nodes[-1].output[0] = "logits"
    return b.model("digits_int8")
