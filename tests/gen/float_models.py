"""Float ONNX models for the tests of the quantiser."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

__all__ = ["FloatBuilder", "depthwise_network", "residual_network"]


class FloatBuilder:
    """Collects nodes, each named after its output; methods return the names of their outputs."""

    def __init__(self, rng: np.random.Generator, shape: Sequence[int | str], *, opset: int = 13) -> None:
        self.rng, self.opset, self.shape = rng, opset, list(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray | Sequence[float]) -> str:
        name = f"c{len(self.constants)}"
        values = np.asarray(array)
        values = values.astype(np.float32) if values.dtype == np.float64 else values
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        name = name or f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def conv(self, source: str, channels: int, outputs: int, *, kernel: int = 3, depthwise: bool = False,
             bias: bool = True, name: str = "") -> str:
        inputs = 1 if depthwise else channels
        weights = self.rng.normal(size=(outputs, inputs, kernel, kernel)) / np.sqrt(inputs * kernel * kernel)
        operands = [self.constant(weights), *([self.constant(self.rng.normal(size=outputs) / 4)] if bias else [])]
        return self.node("Conv", source, *operands, name=name, pads=[kernel // 2] * 4,
                         group=channels if depthwise else 1)

    def batch_norm(self, source: str, channels: int) -> str:
        gamma, beta, mean, variance = self.rng.uniform([0.5, -1, -1, 0.2], [2, 1, 1, 2], (channels, 4)).T
        return self.node("BatchNormalization", source, *map(self.constant, (gamma, beta, mean, variance)))

    def model(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "float", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.constants)
        return shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8))


def residual_network(rng: np.random.Generator, *, opset: int = 13) -> onnx.ModelProto:
    """Batch norms, an addition, a pool, a concatenation, Clip, LeakyRelu, Gemm and Softmax; 3x12x12 -> 5."""
    b = FloatBuilder(rng, ["N", 3, 12, 12], opset=opset)
    stem = b.node("Relu", b.batch_norm(b.conv("x", 3, 8, bias=False, name="stem"), 8), name="stem_relu")
    branch = b.batch_norm(b.conv(stem, 8, 8, bias=False, name="branch"), 8)
    total = b.node("Relu", b.node("Add", branch, stem, name="sum"), name="sum_relu")
    pooled = b.node("MaxPool", total, name="pool", kernel_shape=[2, 2], strides=[2, 2])
    clipped = b.node("Clip", b.conv(pooled, 8, 6, kernel=1, name="clipped"), b.constant(np.float32(0)),
                     b.constant(np.float32(6)), name="relu6")
    bent = b.node("LeakyRelu", b.conv(pooled, 8, 6, name="bent"), name="leaky", alpha=0.1)
    both = b.node("Concat", clipped, bent, name="both", axis=1)
    flat = b.node("Flatten", b.node("GlobalAveragePool", both, name="mean"), name="flat")
    scores = b.node("Gemm", flat, b.constant(rng.normal(size=(5, 12)) / 3), b.constant(rng.normal(size=5)),
                    name="scores", transB=1)
    return b.model(b.node("Softmax", scores, name="y", axis=1))


def depthwise_network(rng: np.random.Generator, spread: float = 1.0) -> onnx.ModelProto:
    """Pointwise, depthwise, pointwise, depthwise, pointwise; channels differ by up to ``spread`` in size."""
    b = FloatBuilder(rng, [1, 4, 8, 8])
    x, channels = "x", 4
    for stage in range(2):
        x = b.node("Relu", b.conv(x, channels, 16, kernel=1, name=f"point{stage}"))
        factors = spread ** rng.uniform(-0.5, 0.5, 16)
        for constant in b.constants[-2:]:
            array = numpy_helper.to_array(constant)
            constant.CopyFrom(numpy_helper.from_array(
                (array * factors.reshape(-1, *[1] * (array.ndim - 1))).astype(np.float32), constant.name))
        x, channels = b.node("Relu", b.conv(x, 16, 16, depthwise=True, name=f"depth{stage}")), 16
    return b.model(b.conv(x, 16, 5, kernel=1, name="y"))
