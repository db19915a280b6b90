"""Masks of scores: constants that are added in front of a Softmax, as low as makes the shares of some keys nothing.

Steps of a sum with -1e9, or with -100, would be too coarse for the other scores. Such a number becomes the one that
puts a key so far below the lowest score that its share is nothing still. A Where that puts such a number in the place
of scores is the sum. A mask that an input of the model makes gives the scores it leaves their range, too.
"""

from collections.abc import Collection, Iterator, Mapping
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.index import GraphIndex
from gen.quantize.rewriting import WEIGHTED, Rewriting

__all__ = ["ExpandedMasks", "bound_masks", "make_masks_finite"]

#: What masks a key at most; other numbers are biases of positions.
_MASKED = -100.0
#: What lower numbers become in a float model, where scores may be of any size; in the place of scores no higher one
#: masks for certain.
_LOWEST = -10_000.0
#: How far a masked key is below the lowest score: its share is e^-8 of another's at most.
_BELOW = 8.0
#: What repeats numbers, or arranges them.
_ARRANGING = ("Expand", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity")
#: The least range of scores beside a mask: steps of a sum's operands may not be too different.
_RANGE = 1.0


class ExpandedMasks(Rewriting):
    """Masks of keys that inputs of the model make, the same for all heads, as masks of each head's scores: they are
    repeated once for all sums.
    """

    OPERATORS = frozenset(("Add",))

    def __init__(self, index: GraphIndex) -> None:
        super().__init__(index)
        self._of_scores = _of_softmax(index.model)
        self._weighted = _with_weights(index.graph)
        #: Mask and shape -> the mask in that shape.
        self._expanded: dict[tuple[str, tuple[int, ...]], str] = {}

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.output[0] not in self._of_scores:
            return
        shapes = [self._shapes.get(name, []) for name in node.input]
        first, second = (prod(size or 1 for size in shape) for shape in shapes)
        place = int(first > second)
        mask, shape, whole = node.input[place], shapes[place], shapes[1 - place]
        if (len(whole) != 4 or not all(whole[1:]) or len(shape) < 3 or shape[-3] != 1 or shape[-2] == 1 or whole[1] == 1
                or mask in self._constants or mask in self._weighted):
            return
        key = mask, tuple(whole[1:])
        if key not in self._expanded:
            yield (made := self._node(node, "Expand", mask, self._constant(node.name, np.array([1, *whole[1:]]))))
            self._expanded[key] = made.output[0]
        node.input[place] = self._expanded[key]
        yield node


def make_masks_finite(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with `_LOWEST` in the place of lower numbers, in a constant of its own for each sum."""
    if not any(node.op_type == "Softmax" for node in model.graph.node):
        return model
    _put_masks_last(GraphIndex(model))
    _give_own_sums(GraphIndex(model))
    index = GraphIndex(model)
    _add_choices(index)
    _bound_choices(index)
    for node, tensor in list(_masks(model)):
        mask = np.maximum(numpy_helper.to_array(tensor), np.float32(_LOWEST))
        node.input[list(node.input).index(tensor.name)] = index.constant(f"{node.name}/mask", mask)
    return model


def _put_masks_last(index: GraphIndex) -> None:
    """Masks are added right in front of a Softmax, after scales and other constants: constant ones, and those that
    inputs make; a Max that bounds nothing but what is masked is left out.
    """
    weighted = _with_weights(index.graph)
    sums: dict[str, list[NodeProto]] = {}   # result of a Softmax -> the sum that its mask becomes, and what that reads
    scaled: dict[tuple[str, float], str] = {}
    moved = set[str]()
    for softmax in [node for node in index.graph.node if node.op_type == "Softmax"]:
        kept, source, factor, mask = [(softmax, 0)], softmax.input[0], 1.0, ""
        for node, place, number in _with_constants(index, source):
            if node.op_type == "Add" and number.min(initial=0) <= _MASKED:
                mask = node.input[1 - place]
                break
            if node.op_type != "Max":
                kept.append((node, place))
                factor *= {"Mul": number, "Div": 1 / number}[node.op_type].item() if node.op_type != "Add" else 1.0
            source = node.input[place]
        total = index.made(source, "Add") if index.uses(source) == 1 else None
        if total is not None and not mask:
            mask = next((name for name in total.input if name not in weighted and index.number(name) is None), "")
        if total is not None and mask:
            source = total.input[int(total.input[0] == mask)]
            fixed = index.number(mask)
            lowest = _MASKED if fixed is None else np.maximum(fixed * factor, _LOWEST).min()
            if (total.output[0] == softmax.input[0] or lowest > _MASKED or fixed is None and source not in weighted
                    or index.shapes.get(source) != index.shapes.get(total.output[0])):
                continue
        for (reader, place), name in zip(kept, (*(node.output[0] for node, _ in kept[1:]), source), strict=True):
            reader.input[place] = name
        if total is not None and mask:
            moved.add(total.output[0])
            made = sums[softmax.output[0]] = list[NodeProto]()
            name = index.name(f"{total.name or total.output[0]}/last")
            if fixed is not None:
                mask = index.constant(f"{name}/mask", np.maximum(fixed * factor, _LOWEST).astype(np.float32))
            elif factor != 1.0:
                if (mask, factor) not in scaled:
                    own = scaled[mask, factor] = index.name(f"{name}/scaled")
                    times = index.constant(f"{name}/factor", np.array(factor, np.float32))
                    made.append(helper.make_node("Mul", [mask, times], [own], name=own))
                mask = scaled[mask, factor]
            made.append(helper.make_node("Add", [softmax.input[0], mask], [name], name=name))
            softmax.input[0] = name
    nodes = [node for each in index.graph.node if each.output[0] not in moved
             for node in (*sums.get(each.output[0], ()), each)]
    del index.graph.node[:]
    index.graph.node.extend(nodes)


def _with_constants(index: GraphIndex, name: str) -> Iterator[tuple[NodeProto, int, np.ndarray]]:
    """What makes a value that nothing else reads of another one and a constant, from its end: sums, scales above zero,
    bounds as low as masks; with the place of that value among the inputs, and the constant.
    """
    while (node := index.made(name, "Add", "Mul", "Div", "Max")) is not None and index.uses(name) == 1:
        numbers = [index.number(each) for each in node.input]
        if len(numbers) != 2 or (numbers[0] is None) == (numbers[1] is None):
            return
        place = int(numbers[0] is not None)
        number = numbers[1 - place]
        assert number is not None
        single = number.size == 1 and 0 < number.item() < np.inf
        if number.dtype != np.float32 or not (node.op_type == "Add" or (
                number.max(initial=-np.inf) <= _LOWEST if node.op_type == "Max" else
                single and (place == 0 or node.op_type == "Mul"))):
            return
        yield node, place, number
        name = node.input[place]


def _give_own_sums(index: GraphIndex) -> None:
    """Masked scores that a Softmax reads, and something else, too: the Softmax gets a sum, or a choice, of its own.

    With one range for both, either the others would lose what is masked, or the Softmax the steps between scores.
    """
    nodes, weighted = list[NodeProto](), _with_weights(index.graph)
    for node in index.graph.node:
        nodes.append(node)
        read = node.output[0] if node.op_type in ("Add", "Where") else ""
        rows = [reader for reader in index.readers[read] if reader.op_type == "Softmax"] if read else []
        if not rows or len(rows) == len(index.readers[read]) and read not in index.outputs or weighted.issuperset(
                node.input):
            continue
        own = NodeProto()
        own.CopyFrom(node)
        own.name = own.output[0] = index.name(f"{node.name or read}/masked")
        for reader in rows:
            reader.input[0] = own.output[0]
        nodes.append(own)
    if len(nodes) > len(index.graph.node):
        del index.graph.node[:]
        index.graph.node.extend(nodes)


def _with_weights(graph: onnx.GraphProto) -> set[str]:
    """Values with a layer with weights among what they are made of."""
    found = set[str]()
    for node in graph.node:
        if node.op_type in WEIGHTED or not found.isdisjoint(node.input):
            found.update(node.output)
    return found


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


def _bound_choices(index: GraphIndex) -> None:
    """`_LOWEST` in the place of lower numbers of Wheres that make masks of what inputs say, for sums alone: these read
    one of their own where anything else reads a Where, too.
    """
    sums = _of_softmax(index.model)
    masks, nodes = _for_sums(index, sums), list[NodeProto]()
    for node in index.graph.node:
        nodes.append(node)
        numbers = {place: number for place, name in enumerate(node.input) if node.op_type == "Where" and place
                   and (number := index.number(name)) is not None and number.dtype == np.float32
                   and number.min(initial=0) < _LOWEST}
        readers = [reader for reader in index.readers[node.output[0]] if _serves(reader, sums, masks)]
        if not numbers or not readers:
            continue
        if node.output[0] not in masks:
            own = NodeProto()
            own.CopyFrom(node)
            own.name = own.output[0] = index.name(f"{node.name or node.output[0]}/mask")
            for reader in readers:
                reader.input[:] = [own.output[0] if name == node.output[0] else name for name in reader.input]
            nodes.append(node := own)
        for place, number in numbers.items():
            node.input[place] = index.constant(f"{node.name}/mask", np.maximum(number, np.float32(_LOWEST)))
    del index.graph.node[:]
    index.graph.node.extend(nodes)


def _for_sums(index: GraphIndex, sums: Collection[str]) -> set[str]:
    """Values that nothing reads but these sums, and what arranges them for these."""
    masks = set[str]()
    inputs = [value.name for value in index.graph.input]
    for name in (*(name for node in reversed(index.graph.node) for name in node.output), *inputs):
        found = [reader for reader in index.readers[name] if reader.op_type != "Shape"]
        if found and name not in index.outputs and all(_serves(reader, sums, masks) for reader in found):
            masks.add(name)
    return masks


def _serves(reader: NodeProto, sums: Collection[str], masks: Collection[str]) -> bool:
    """Whether a node is one of these sums, or arranges a value for them."""
    return reader.output[0] in (sums if reader.op_type == "Add" else masks if reader.op_type in _ARRANGING else ())


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
    alone = _for_sums(index, {node.input[0] for node in model.graph.node if node.op_type == "Softmax"})
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
        masks = (name for name in node.input if name != known[0] and node.op_type == "Add")
        for name in (each for mask in masks for each in _picked_from(index, mask, alone) if each in found):
            # Several sums may read it.
            ranges[name] = (min(low - _BELOW - high, ranges.get(name, (0.0, 0.0))[0]), max(found[name][1], 0.0))
    return ranges


def _picked_from(index: GraphIndex, name: str, alone: Collection[str]) -> Iterator[str]:
    """A value, and those of ``alone`` that it has the numbers of."""
    yield name
    while (maker := index.made(name, *_ARRANGING)) is not None and maker.input[0] in alone:
        name = maker.input[0]
        yield name


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
