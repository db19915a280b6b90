"""How much of a model's work is where."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from gen.onnx.passes.check_types import known_types
from gen.partition.partition import Partition

__all__ = ["Work", "multiplications"]

#: Operator -> the inputs that it multiplies.
_FACTORS = {"Conv": (0, 1), "ConvTranspose": (0, 1), "ConvInteger": (0, 1), "QLinearConv": (0, 3), "Gemm": (0, 1),
            "QGemm": (0, 3), "MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3)}
#: Their weights of the input and between steps are multiplied at each step.
_RECURRENT = ("LSTM", "GRU", "RNN")

#: Nodes that are no work of their own.
_NO_WORK = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True)
class Work:
    """Of one sample, in the whole model, and the part of it that is on the accelerator."""

    multiplications: int
    nodes: int
    accelerated_multiplications: int
    accelerated_nodes: int

    @classmethod
    def of(cls, cut: Partition) -> "Work":
        """``multiplications``: of convolutions, matrix products and recurrent layers; ``nodes``: but those that only
        quantise.
        """
        nodes = [node.name for node in cut.model.nodes if node.op not in _NO_WORK]
        parts = [(segment.place, multiplications(segment.model)) for segment in cut.segments]
        # Shapes that nodes of constants compute are known in the parts, and not in the model as it is.
        macs = max(multiplications(cut.model.proto), sum(count for _, count in parts))
        host = sum(count for place, count in parts if place == "host")
        return cls(macs, len(nodes), macs - host, sum(name not in cut.host for name in nodes))


def multiplications(model: onnx.ModelProto) -> int:
    """Of one sample; those of products whose shapes inference does not know are not counted."""
    shapes = {name: [size.dim_value or 1 for size in kind.tensor_type.shape.dim]
              for name, kind in known_types(model).items() if kind.tensor_type.HasField("shape")}
    shapes |= {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    return sum(_of_steps(node, shapes) if node.op_type in _RECURRENT else _of_node(node, shapes)
               for node in model.graph.node if node.op_type in (*_FACTORS, *_RECURRENT))


def _of_steps(node: onnx.NodeProto, shapes: Mapping[str, list[int]]) -> int:
    steps, *weights = (shapes.get(name, []) for name in node.input[:3])
    layout = next((attribute.i for attribute in node.attribute if attribute.name == "layout"), 0)
    return steps[layout] * sum(map(math.prod, weights)) if steps and all(weights) else 0


def _of_node(node: onnx.NodeProto, shapes: Mapping[str, list[int]]) -> int:
    left, right = (shapes.get(node.input[place], []) for place in _FACTORS[node.op_type])
    result = shapes.get(node.output[0], [])
    if not left or not right or not result:
        return 0
    if node.op_type == "ConvTranspose":
        return math.prod(left) * math.prod(right[1:])
    if "Conv" in node.op_type:
        return math.prod(result) * math.prod(right[1:])
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return math.prod(result) * left[0 if transposed else -1]
