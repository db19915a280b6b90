"""Masks of scores: constants that are added in front of a Softmax, as low as makes the shares of some keys nothing.

Steps of a sum with -1e9, or with -100, would be too coarse for the other scores. Such a number becomes the one that
puts a key so far below the lowest score that its share is nothing still.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, numpy_helper

from gen.onnx.names import unique

__all__ = ["bound_masks", "make_masks_finite"]

#: What masks a key at most; other numbers are biases of positions.
_MASKED = -100.0
#: How far a masked key is below the lowest score: its share is e^-8 of another's at most.
_BELOW = 8.0
#: The least range of scores beside a mask: steps of a sum's operands may not be too different.
_RANGE = 1.0


def make_masks_finite(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with `_MASKED` in the place of lower numbers, in a constant of its own for each sum."""
    taken = {tensor.name for tensor in model.graph.initializer}
    for node, tensor in list(_masks(model)):
        mask = np.maximum(numpy_helper.to_array(tensor), np.float32(_MASKED))
        own = unique(f"{node.name}/mask", taken)
        taken.add(own)
        node.input[list(node.input).index(tensor.name)] = own
        model.graph.initializer.append(numpy_helper.from_array(mask, own))
    return model


def bound_masks(model: onnx.ModelProto, found: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """The ranges of masked scores, and of scores, by those that samples have; masks in ``model`` become what these
    allow.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for node, tensor in _masks(model):
        scores = next(name for name in node.input if name != tensor.name)
        if scores not in found or node.output[0] not in found:
            continue
        low = min(found[scores][0], 0.0)
        high = max(found[scores][1], low + _RANGE)
        ranges |= {scores: (low, high), node.output[0]: (low - _BELOW, high)}
        mask = numpy_helper.to_array(tensor)
        bounded = np.where(mask <= _MASKED, np.float32(low - _BELOW - high), mask)
        tensor.CopyFrom(numpy_helper.from_array(bounded, tensor.name))
    return ranges


def _masks(model: onnx.ModelProto) -> Iterator[tuple[NodeProto, TensorProto]]:
    """Sums that a Softmax reads, and their constants that mask something."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    read = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}
    for node in model.graph.node:
        if node.op_type == "Add" and node.output[0] in read:
            for tensor in (constants[name] for name in list(node.input) if name in constants):
                if tensor.data_type == TensorProto.FLOAT and numpy_helper.to_array(tensor).min(initial=0) <= _MASKED:
                    yield node, tensor
