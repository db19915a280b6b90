"""How large a model is: its parameters, and the multiplications of a sample."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from gen.prune.layers import QUANTISING, ModelView, find_layers

__all__ = ["LEARNT", "Counts"]

#: Operator -> inputs that are learnt, where they are constants.
LEARNT = {"Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (1,), "BatchNormalization": (1, 2),
          "PRelu": (1,), "Add": (0, 1), "Sign": (0,), "QLinearConv": (3, 8), "QLinearMatMul": (3,), "QGemm": (3, 6),
          "LayerNormalization": (1, 2), "RMSNormalization": (1,), "InstanceNormalization": (1, 2),
          "GroupNormalization": (1, 2), "Concat": (0, 1)}


@dataclass(frozen=True)
class Counts:
    """``parameters``: weights, biases, and the scales and shifts of norms; ``nonzero``: those that are not 0.
    ``macs``: multiplications of a sample in convolutions and matrix products; ``useful_macs``: by weights that are not.
    """

    parameters: int
    nonzero: int
    macs: int
    useful_macs: int

    @classmethod
    def of(cls, model: onnx.ModelProto) -> "Counts":
        """Of a model whose nodes have names; a layer whose result has no known shape adds no multiplications."""
        view = ModelView.of(model)
        learnt = [view.array(name) for name in sorted(set(_learnt(view)))]
        makers = {node.name: node for node in model.graph.node}
        macs = useful = 0
        for layer in find_layers(model):
            weights = layer.weights(view.array(layer.initializer))
            shape = view.shapes.get(makers[layer.node].output[0], ())
            # Of a product's result the last axis is that of the weights.
            places = math.prod(shape[2:] if layer.op in ("Conv", "QLinearConv") else shape[1:-1]) if shape else 0
            macs += weights.size * places
            useful += int(np.count_nonzero(weights)) * places
        return cls(sum(array.size for array in learnt), sum(int(np.count_nonzero(array)) for array in learnt), macs,
                   useful)


def _learnt(view: ModelView) -> Iterator[str]:
    for node in view.model.graph.node:
        for place in LEARNT.get(node.op_type, ()):
            name = view.behind(node.input[place], QUANTISING) if place < len(node.input) else ""
            if name in view.constants and view.shapes[name]:
                yield name
