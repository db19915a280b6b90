"""Constants that are added to activations, moved into the biases of layers beside them.

ReActNet's RPReLU shifts a sum in front of its PRelu and again after it, and its RSign shifts what is read then. On the
machine each such shift of a tensor is a layer of its own, but a bias is free. What is left after `move_shifts` is a
shift in front of a Sign, which `fold_shifts` has the read tensor made with.
"""

from collections.abc import Callable
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.edited import EditedGraph
from gen.onnx.passes import drop_unused

__all__ = ["fold_shifts", "move_shifts"]

#: Operators that have a bias -> its input.
_BIASED = {"Conv": 2, "BatchNormalization": 2}
#: Operators of windows that move with what they read, where these do not reach beyond it.
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")

#: Adds a constant, float32 (C,) or (1,), to something.
_Take = Callable[[np.ndarray], None]


def move_shifts(model: onnx.ModelProto) -> onnx.ModelProto:
    """(u + v) + c -> (u + c) + v, where a layer with a bias makes u; and of p + c, where every reader adds another
    constant or such a u to it, each reader takes c and reads p. The numbers are the same but for the order of sums.
    """
    return _apply(model, lambda graph, nodes: [_Shift(graph, node).move() for node in nodes])


def fold_shifts(model: onnx.ModelProto) -> onnx.ModelProto:
    """Sign(x + c) becomes Sign(x), with c in the bias of the layer that makes x.

    x may have other readers, if each is a layer that can take -c in its own bias, or a sum with such a layer; or x + c
    may be the only reader of x. The numbers stay the same up to the order of sums.

    An x that is PRelu(v), with slopes s of 1 at most, becomes ``v + Relu((s - 1) * v)`` for that, with c in v.
    """
    # The last first: where shifts follow each other, they become one.
    return _apply(drop_unused(model), lambda graph, nodes: [_Shift(graph, node).fold() for node in reversed(nodes)])


def _apply(model: onnx.ModelProto, change: Callable[[EditedGraph, list[NodeProto]], list[bool]]) -> onnx.ModelProto:
    """``model`` after changes to its sums with constants, as often as there is one."""
    if not any(node.op_type == "Add" for node in model.graph.node):
        return drop_unused(model)
    graph, changed = EditedGraph(model), True
    while changed:
        sums = [node for node in graph.nodes
                if node.op_type == "Add" and not graph.constants.keys().isdisjoint(node.input)]
        changed = any(change(graph, sums))
    graph.finish()
    return drop_unused(model)


def _reaches_beyond(node: NodeProto) -> bool:
    """Whether windows may be padded, with values that count."""
    return node.op_type != "MaxPool" and any(
        (a.name == "auto_pad" and a.s not in (b"NOTSET", b"VALID")) or (a.name == "ceil_mode" and a.i)
        or (a.name == "pads" and any(a.ints)) for a in node.attribute)


class _Shift:
    """An Add of one number for each channel, or for all, to an activation; or any other, which is not moved."""

    def __init__(self, graph: EditedGraph, node: NodeProto) -> None:
        self._graph, self._node = graph, node
        self._constants, self._makers, self._shapes = graph.constants, graph.makers, graph.shapes

    def move(self) -> bool:
        """Whether it was moved, and is no longer there."""
        found, result = self._split(self._node), self._node.output[0]
        if found is None or not self._graph.uses(result) or result in self._graph.outputs:
            return False
        source, shift = found
        return self._into_sum(source, shift) or self._into_readers(source, shift)

    def _split(self, node: NodeProto) -> tuple[str, TensorProto] | None:
        """The activation and the constant that an Add has, of one number for each of its channels, or for all."""
        for source, other in (node.input, reversed(node.input)):
            constant = self._constants.get(other)
            if constant is not None and source not in self._constants:
                shape, size = list(constant.dims), prod(constant.dims)
                per_channel = len(shape) in (3, 4) and shape[-2:] == [1, 1] and shape[:-3] in ([], [1])
                fits = len(self._shapes.get(source, [])) >= len(shape) and self._has_channels(source, size)
                return (source, constant) if (per_channel and fits) or shape == [] else None
        return None

    def _has_channels(self, name: str, size: int) -> bool:
        """Whether so many numbers are one for each channel of a value (N, C, H, W), or one for all."""
        shape = self._shapes.get(name, [])
        return size == 1 or (len(shape) == 4 and shape[1] == size)

    def _layer(self, name: str, size: int) -> NodeProto | None:
        """What makes a value that nothing else reads, if it is a layer with a constant bias, or with none, to which
        ``size`` numbers can be added.
        """
        maker = self._makers.get(name)
        if maker is None or maker.op_type not in _BIASED or self._graph.uses(name) != 1:
            return None
        return maker if self._has_channels(name, size) and self._has_constants(maker) else None

    def _layer_of_sum(self, node: NodeProto, size: int, besides: str = "") -> NodeProto | None:
        """The first `_layer` of what an Add adds up, ``besides`` aside."""
        found = (self._layer(name, size) for name in node.input if name != besides)
        return next((layer for layer in found if layer is not None), None)

    def _into_sum(self, source: str, shift: TensorProto) -> bool:
        """Into a layer in front of the sum that the shift is added to."""
        maker = self._makers.get(source)
        if maker is None or maker.op_type != "Add" or self._graph.uses(source) != 1:
            return False
        layer = self._layer_of_sum(maker, prod(shift.dims))
        if layer is None:
            return False
        self._add(layer, shift)
        self._replace(source)
        return True

    def _into_readers(self, source: str, shift: TensorProto) -> bool:
        """Into what reads the shifted value, all of it; not from a layer that has it in its bias anyway."""
        result = self._node.output[0]
        maker = self._makers.get(source)
        readers = self._graph.reading(result)
        if (maker is not None and maker.op_type in _BIASED) or self._graph.uses(result) != len(readers):
            return False
        layers: list[NodeProto | None] = []
        for node in readers:
            others = [name for name in node.input if name != result]
            layer = self._layer(others[0], prod(shift.dims)) if node.op_type == "Add" and others else None
            if layer is None and (node.op_type != "Add" or self._split(node) is None):
                return False
            layers.append(layer)
        for node, layer in zip(readers, layers, strict=True):
            if layer is not None:
                self._add(layer, shift)
                continue
            split = self._split(node)
            assert split is not None
            total = numpy_helper.to_array(split[1]) + numpy_helper.to_array(shift)
            place = list(node.input).index(split[1].name)
            self._graph.connect(node, place, self._constant(f"{node.name}/shift", total))
        self._replace(source)
        return True

    def fold(self) -> bool:
        """Whether what it shifts is made with the shift instead."""
        found, result = self._split(self._node), self._node.output[0]
        if found is None or not self._graph.uses(result):
            return False
        source, shift = found
        others = [node for node in self._graph.reading(source) if node.output[0] != result]
        readers = self._graph.reading(result)
        signs = bool(readers) and all(node.op_type == "Sign" for node in readers)
        if (others and not signs) or self._graph.uses(result) != len(readers):
            return False
        size = prod(shift.dims)
        takes, give = self._taking(source, others, size, 1), self._giving(source, size)
        if takes is None or give is None:
            return False
        number = numpy_helper.to_array(shift).reshape(-1).astype(np.float32)
        for take in takes:
            take(-number)
        give(number)    # the last: it may put other nodes in the place of those that the others know
        self._replace(source)
        return True

    def _taking(self, name: str, readers: list[NodeProto], size: int, besides: int = 0) -> list[_Take] | None:
        """What has readers of a value, and nothing else but so many, do as before where that grows by the ``size``
        numbers that they get; None if one of them cannot.
        """
        if self._graph.uses(name) != len(readers) + besides:
            return None
        takes: list[_Take] = []
        for node in readers:
            found = self._taking_of(name, node, size)
            if found is None:
                return None
            takes += found
        return takes

    def _taking_of(self, name: str, node: NodeProto, size: int) -> list[_Take] | None:
        """As `_taking`, of a single reader."""
        if node.op_type == "Add":
            split = self._split(node)
            if split is not None:
                return [lambda number: self._add_to_constant(node, number)] if split[0] == name else None
            layer = self._layer_of_sum(node, size, name)
            return None if layer is None else [lambda number: self._add_numbers(layer, number)]
        if _reaches_beyond(node):
            return None
        if node.op_type in _POOLS and len(node.output) == 1:
            readers = self._graph.reading(node.output[0])
            return self._taking(node.output[0], readers, size)
        if node.op_type == "Conv" and node.input[0] == name and self._has_constants(node):
            return [lambda number: self._add_numbers(node, self._weighted(node, number))]
        return None

    def _weighted(self, node: NodeProto, number: np.ndarray) -> np.ndarray:
        """What a Conv without padding makes of an input that is ``number`` everywhere."""
        weights = numpy_helper.to_array(self._constants[node.input[1]]).astype(np.float64)
        groups = next((a.i for a in node.attribute if a.name == "group"), 1)
        inputs = np.broadcast_to(number, weights.shape[1] * groups).reshape(groups, 1, -1)
        sums = weights.reshape(*weights.shape[:2], -1).sum(axis=2).reshape(groups, -1, weights.shape[1])
        return (sums * inputs).sum(axis=2).ravel().astype(np.float32)

    def _giving(self, name: str, size: int, *, bent: bool = False) -> _Take | None:
        """What adds ``size`` numbers to a value, for all its readers, where its layer has a bias; None if it cannot be.
        ``bent``: for a PRelu, a maximum or a Concat, of which it has to be the only reader.
        """
        maker = self._makers.get(name)
        if maker is None or (bent and self._graph.uses(name) != 1):
            return None
        if maker.op_type in _BIASED and self._has_constants(maker):
            return lambda number: self._add_numbers(maker, number)
        if maker.op_type == "Add":
            if self._split(maker) is not None:
                return lambda number: self._add_to_constant(maker, number)
            layer = self._layer_of_sum(maker, size)
            return None if layer is None else lambda number: self._add_numbers(layer, number)
        if maker.op_type == "MaxPool":      # which leaves padding out
            return self._giving(maker.input[0], size, bent=True) if len(maker.output) == 1 else None
        if maker.op_type == "Concat":
            return self._giving_parts(maker)
        if maker.op_type != "PRelu" or bent or maker.input[1] not in self._constants:
            return None
        slopes = numpy_helper.to_array(self._constants[maker.input[1]])
        give = self._giving(maker.input[0], size, bent=True)
        # One with a single slope is in the layer in front of it.
        per_channel = slopes.ndim in (3, 4) and slopes.size == slopes.shape[-3] > 1
        if give is None or not per_channel or slopes.max() > 1:
            return None

        def bend(number: np.ndarray) -> None:
            give(number)
            self._bend(maker, slopes.reshape(-1), number)
        return bend

    def _giving_parts(self, node: NodeProto) -> _Take | None:
        """`_giving` of channels side by side."""
        axis = next(a.i for a in node.attribute if a.name == "axis")
        sizes = [self._shapes[name][1] if len(self._shapes.get(name, [])) == 4 else 0 for name in node.input]
        if axis != 1 or len(set(node.input)) < len(node.input) or not all(sizes):
            return None
        gives = [self._giving(name, size, bent=True) for name, size in zip(node.input, sizes, strict=True)]
        if None in gives:
            return None
        ends = np.cumsum(sizes)

        def give(number: np.ndarray) -> None:
            for part, of_part in zip(gives, np.split(np.broadcast_to(number, ends[-1]), ends[:-1]), strict=True):
                assert part is not None
                part(of_part)
        return give

    def _bend(self, node: NodeProto, slopes: np.ndarray, shift: np.ndarray) -> None:
        """A PRelu of what has got a shift, and the same shift of its result, as a sum."""
        source, name = node.input[0], node.output[0]
        scaled, moved, less = (self._graph.name(f"{node.name or name}/{what}") for what in ("scaled", "moved", "less"))
        factor = self._constant(f"{node.name}/factor", (slopes - 1)[:, None, None])
        offset = self._constant(f"{node.name}/offset", ((1 - slopes) * shift)[:, None, None])
        made = [helper.make_node("Mul", [source, factor], [scaled], name=scaled),
                helper.make_node("Add", [scaled, offset], [moved], name=moved),
                helper.make_node("Relu", [moved], [less], name=less),
                helper.make_node("Add", [source, less], [name], name=node.name)]
        self._graph.put(node, made)

    def _has_constants(self, node: NodeProto) -> bool:
        """Whether weights of a layer are constant, and so is its bias, if it has one."""
        bias = node.input[2] if len(node.input) > 2 else ""
        return node.input[1] in self._constants and (not bias or bias in self._constants)

    def _add_to_constant(self, node: NodeProto, number: np.ndarray) -> None:
        """A constant that a node adds."""
        split = self._split(node)
        assert split is not None
        total = numpy_helper.to_array(split[1]) + (number if number.size == 1 else number[:, None, None])
        place = list(node.input).index(split[1].name)
        self._graph.connect(node, place, self._constant(f"{node.name}/shift", total))

    def _add(self, layer: NodeProto, shift: TensorProto) -> None:
        """``shift`` to the bias of a layer."""
        self._add_numbers(layer, numpy_helper.to_array(shift).reshape(-1))

    def _add_numbers(self, layer: NodeProto, numbers: np.ndarray) -> None:
        """The same, of an array (C,) or (1,)."""
        place = _BIASED[layer.op_type]
        channels = self._constants[layer.input[1]].dims[0]
        bias = np.broadcast_to(numbers, channels)
        if len(layer.input) > place and layer.input[place]:
            bias = bias + numpy_helper.to_array(self._constants[layer.input[place]])
        self._graph.connect(layer, place, self._constant(f"{layer.name}/bias", bias))

    def _constant(self, name: str, array: np.ndarray) -> str:
        return self._graph.constant(name, np.ascontiguousarray(array, np.float32))

    def _replace(self, source: str) -> None:
        """Read ``source`` in place of the sum, which is no longer there."""
        self._graph.replace(self._node.output[0], source)
        self._graph.remove(self._node)
