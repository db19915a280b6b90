"""Masks of scores: constants that are added in front of a Softmax, as low as makes the shares of some keys nothing.

Steps of a sum with -1e9, or with -100, would be too coarse for the other scores. Such a number becomes the one that
puts a key so far below the lowest score that its share is nothing still. A Where that puts such a number in the place
of scores is the sum. A mask that an input of the model makes gives the scores it leaves their range, too.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, numpy_helper

from gen.onnx.index import GraphIndex

__all__ = ["bound_masks", "make_masks_finite"]

#: What masks a key at most; other numbers are biases of positions.
_MASKED = -100.0
#: What lower numbers become in a float model, where scores may be of any size; in the place of scores no higher one
#: masks for certain.
_LOWEST = -10_000.0
#: How far a masked key is below the lowest score: its share is e^-8 of another's at most.
_BELOW = 8.0
#: The least range of scores beside a mask: steps of a sum's operands may not be too different.
_RANGE = 1.0


def make_masks_finite(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with `_LOWEST` in the place of lower numbers, in a constant of its own for each sum."""
    if not any(node.op_type == "Softmax" for node in model.graph.node):
        return model
    index = GraphIndex(model)
    _add_choices(index)
    for node, tensor in list(_masks(model)):
        mask = np.maximum(numpy_helper.to_array(tensor), np.float32(_LOWEST))
        node.input[list(node.input).index(tensor.name)] = index.constant(f"{node.name}/mask", mask)
    return model


def _add_choices(index: GraphIndex) -> None:
    """Sums in the place of Wheres that choose between scores and a number that masks them, by a constant, and leave
    each row a key.
    """
    read = _of_softmax(index.model)
    for node in index.graph.node:
        if node.op_type != "Where" or node.output[0] not in read:
            continue
        chosen, *numbers = map(index.number, node.input)
        if chosen is None or [number is None for number in numbers] not in ([True, False], [False, True]):
            continue
        place = 1 if numbers[0] is None else 0
        number = numbers[place]
        if number is None or number.dtype != np.float32 or number.max(initial=_LOWEST) > _LOWEST:
            continue
        mask = np.where(chosen, *((np.float32(0), number) if place else (number, np.float32(0))))
        if not mask.ndim or not (mask == 0).any(axis=-1).all():
            continue
        scores = node.input[2 - place]
        node.op_type = "Add"
        node.input[:] = [scores, index.constant(f"{node.name}/mask", mask)]


def bound_masks(model: onnx.ModelProto, found: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """The ranges of masked scores, of scores, and of masks, by those that samples have; constant masks in ``model``
    become what these allow.
    """
    ranges = _of_choices(model, found)
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


def _of_choices(model: onnx.ModelProto, found: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Of scores to which a mask that is no constant is added, or in whose place it puts numbers."""
    index = GraphIndex(model)
    ranges: dict[str, tuple[float, float]] = {}
    for softmax in model.graph.node:
        node = index.made(softmax.input[0], "Add", "Where") if softmax.op_type == "Softmax" else None
        if node is None or found.get(node.output[0], (0, 0))[0] > _MASKED:
            continue
        known = [name for name in node.input if name in found and found[name][0] > _MASKED]
        if len(known) != 1 or not index.constants.keys().isdisjoint(node.input) and node.op_type == "Add":
            continue
        low, high = min(found[known[0]][0], 0.0), found[known[0]][1]
        high = max(high, low + _RANGE)
        ranges |= {known[0]: (low, high), node.output[0]: (low - _BELOW, high)}
        ranges |= {name: (low - _BELOW - high, max(found[name][1], 0.0)) for name in node.input
                   if name in found and name != known[0] and node.op_type == "Add"}
    return ranges


def _masks(model: onnx.ModelProto) -> Iterator[tuple[NodeProto, TensorProto]]:
    """Sums that a Softmax reads, and their constants that mask something."""
    constants, read = {tensor.name: tensor for tensor in model.graph.initializer}, _of_softmax(model)
    for node in model.graph.node:
        if node.op_type == "Add" and node.output[0] in read:
            for tensor in (constants[name] for name in list(node.input) if name in constants):
                if tensor.data_type == TensorProto.FLOAT and numpy_helper.to_array(tensor).min(initial=0) <= _MASKED:
                    yield node, tensor


def _of_softmax(model: onnx.ModelProto) -> set[str]:
    """Values that Softmaxes read, and nothing else."""
    read = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}
    others = {name for node in model.graph.node if node.op_type != "Softmax" for name in node.input}
    return read - others - {value.name for value in model.graph.output}
