"""A small builder of float ONNX models for tests of pruning and training."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["FloatBuilder"]


class FloatBuilder:
    """Collects nodes with random weights; methods return the names of their outputs."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_y"], name=name, **attributes))
        return f"{name}_y"

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32))

    def conv(self, value: str, channels: int, outputs: int, kernel: int = 3, **attributes: Any) -> str:
        inputs = channels // attributes.get("group", 1)
        return self.node("Conv", value, self.weights(outputs, inputs, kernel, kernel), **attributes)

    def norm(self, value: str, gamma: np.ndarray) -> str:
        channels = len(gamma)
        rest = (self.rng.normal(size=channels), self.rng.normal(size=channels), self.rng.uniform(0.5, 2, channels))
        return self.node("BatchNormalization", value, *(
            self.constant(array.astype(np.float32)) for array in (gamma, *rest)))

    def build(self, output: str, *shape: int | str, rank: int = 2) -> onnx.ModelProto:
        """``shape``: of the input ``x``."""
        graph = helper.make_graph(
            self.nodes, "test", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [None] * rank)], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model
