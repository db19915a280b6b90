"""What nodes further on say of a value's axes.

Inputs have their channels last that a layer with weights for the last axis, or a normalisation, reads. What only
computes value by value, as the sum at the end of a block, does not tell, and may come first where a model is cut. A
product has the rows of a Softmax that follows in its channels. What no node on the machine reads is the processor's
where it is little.
"""

from collections.abc import Mapping

from gen.onnx.functions import ELEMENTWISE
from gen.onnx.model import Model

__all__ = ["last", "scores", "tokens"]

#: What leaves the last axis as it is; a Reshape as long as its size stays.
_PASSING = ELEMENTWISE | {("", op) for op in ("QuantizeLinear", "DequantizeLinear", "Reshape")}
#: What may be between the last node and an output.
_ENDING = ("QuantizeLinear", "DequantizeLinear", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity")


def tokens(model: Model) -> frozenset[str]:
    """The inputs of a model that are so, of three axes or more."""
    dequantised = {node.outputs[0]: node.inputs[0] for node in model.nodes if node.op == "DequantizeLinear"}
    sizes: dict[str, int] = {}      # value -> that of the last axis, if it is that of the channels
    for node in reversed(model.nodes):
        if node.op in ("LayerNormalization", "RMSNormalization", "MatMul"):
            sizes[node.inputs[0]] = _size(model, dequantised, node.inputs[1])
        elif (node.domain, node.op) in _PASSING and node.outputs[0] in sizes:
            sizes.update(dict.fromkeys(node.inputs, sizes[node.outputs[0]]))
        elif node.inputs:
            sizes.pop(node.inputs[0], None)
    return frozenset(value.name for value in model.inputs
                     if len(value.shape) > 2 and sizes.get(value.name) == value.shape[-1])


def scores(model: Model) -> frozenset[str]:
    """The nodes that multiply what a Softmax follows, perhaps scaled or masked."""
    found: set[str] = set()
    values: set[str] = set()
    for node in reversed(model.nodes):
        if node.op == "Softmax" or (node.domain, node.op) in _PASSING and not values.isdisjoint(node.outputs):
            values.update(node.inputs)
        elif node.op == "MatMul" and not values.isdisjoint(node.outputs):
            found.add(node.name)
    return frozenset(found)


def last(model: Model) -> frozenset[str]:
    """The nodes whose results, quantised or not, in whatever arrangement, are outputs of the model alone."""
    inner = {name for node in model.nodes if node.op not in _ENDING for name in node.inputs}
    for node in reversed(model.nodes):
        if node.op in _ENDING and not inner.isdisjoint(node.outputs):
            inner.update(node.inputs)
    return frozenset(node.name for node in model.nodes if inner.isdisjoint(node.outputs))


def _size(model: Model, dequantised: Mapping[str, str], name: str) -> int:
    """The first axis of a constant, perhaps a dequantised one; 0 of any other value."""
    constant = model.constants.get(dequantised.get(name, name))
    return 0 if constant is None or not constant.ndim else len(constant)
