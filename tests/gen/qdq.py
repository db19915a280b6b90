"""A small builder of quantised ONNX models for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Builder", "in_two_parts"]


class Builder:
    """Collects nodes; ``number`` is the type of all activations. Methods return the names of their outputs."""

    def __init__(self, rng: np.random.Generator, *, opset: int = 13, number: type = np.int8) -> None:
        self.rng, self.opset, self.number = rng, opset, number
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def constant(self, array: np.ndarray | list) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_y"], name=name, domain=domain, **attributes))
        return f"{name}_y"

    def input(self, *shape: int | str, name: str = "x", number: type | None = None) -> str:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(number or self.number))
        self.inputs.append(helper.make_tensor_value_info(name, elem, shape))
        return name

    def output(self, name: str, number: type | None = None, *, rank: int = 4) -> None:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(number or self.number))
        self.outputs.append(helper.make_tensor_value_info(name, elem, [None] * rank))

    def scale(self, scale: float) -> str:
        return self.constant(np.float32(scale))

    def point(self, zero_point: int | None) -> str:
        """A zero point; without one a random one in the middle half, which keeps results from being all clipped."""
        middle = 128 if self.number == np.uint8 else 0
        number = self.rng.integers(middle - 64, middle + 64) if zero_point is None else zero_point
        return self.constant(self.number(number))

    def quantize(self, value: str, scale: float = 0.05, zero_point: int | None = None) -> str:
        return self.node("QuantizeLinear", value, self.scale(scale), self.point(zero_point))

    def dequantize(self, value: str, scale: float = 0.05, zero_point: int | None = None) -> str:
        return self.node("DequantizeLinear", value, self.scale(scale), self.point(zero_point))

    def requantize(self, value: str, scale: float = 0.05, zero_point: int | None = None) -> str:
        """QuantizeLinear and DequantizeLinear with the same parameters."""
        s, z = self.scale(scale), self.point(zero_point)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", value, s, z), s, z)

    def weights(self, *shape: int, per_channel: bool = True, axis: int = 0, number: type = np.int8) -> str:
        """Random dequantised weights with a standard deviation of about 1 / sqrt(summands)."""
        limits = np.iinfo(number)
        array = self.rng.integers(limits.min, limits.max + 1, shape).astype(number)
        count = shape[axis] if per_channel else 1
        scale = self.rng.uniform(0.5, 2, count) / 128 / np.sqrt(np.prod(shape) / shape[axis])
        zero = np.zeros(count, number) if number == np.int8 else self.rng.integers(100, 156, count).astype(number)
        if not per_channel:
            return self.node("DequantizeLinear", self.constant(array), self.scale(scale[0]), self.constant(zero[0]))
        scales = self.constant(scale.astype(np.float32))
        return self.node("DequantizeLinear", self.constant(array), scales, self.constant(zero), axis=axis)

    def bias(self, channels: int, scale: float = 0.001) -> str:
        """A random dequantised int32 bias of up to about 1."""
        array = self.rng.integers(-1000, 1000, channels).astype(np.int32)
        return self.node("DequantizeLinear", self.constant(array), self.scale(scale))

    def build(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "test", self.inputs, self.outputs, self.initializers)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets[:1]))

    def save(self, folder: Path) -> Path:
        path = folder / "model.onnx"
        onnx.save(self.build(), path)
        return path

    def samples(self, count: int = 3) -> dict[str, np.ndarray]:
        """Random inputs over the whole range of their types (floats in -6..6)."""
        result = {}
        for value in self.inputs:
            shape = (count, *(d.dim_value for d in value.type.tensor_type.shape.dim[1:]))
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                result[value.name] = self.rng.uniform(-6, 6, shape).astype(np.float32)
            else:
                number = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
                limits = np.iinfo(number)
                result[value.name] = self.rng.integers(limits.min, limits.max + 1, shape).astype(number)
        return result


def in_two_parts(rng: np.random.Generator) -> Builder:
    """A model of two parts on the accelerator, what lies between and after them on the processor; (N, 4, 6, 6)."""
    b = Builder(rng)
    x = b.requantize(b.input("N", 4, 6, 6, number=np.float32), zero_point=0)
    for last in (False, True):
        x = b.requantize(b.node("Conv", x, b.weights(4, 4, 3, 3), pads=[1, 1, 1, 1]), zero_point=0)
        if not last:
            x = b.requantize(b.node("CumSum", x, b.constant(np.array(3))), zero_point=0)
    b.output(b.node("CumSum", x, b.constant(np.array(2))), np.float32)
    return b
