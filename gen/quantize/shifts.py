"""Constants that are added to activations, moved into the biases of layers beside them.

ReActNet's RPReLU shifts a sum in front of its PRelu and again after it, and its RSign shifts what is read then. On the
machine each such shift of a tensor is a layer of its own, but a bias is free.
"""

from collections import Counter

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, numpy_helper

from gen.onnx.names import unique
from gen.onnx.passes import drop_unused

__all__ = ["move_shifts"]

#: Operators that have a bias -> its input.
_BIASED = {"Conv": 2, "BatchNormalization": 2}


def move_shifts(model: onnx.ModelProto) -> onnx.ModelProto:
    """(u + v) + c -> (u + c) + v, where a layer with a bias makes u; and of p + c, where every reader adds another
    constant or such a u to it, each reader takes c and reads p. The numbers are the same but for the order of sums.
    """
    moved = True
    while moved:
        moved = any(_Shift(model, node).move() for node in model.graph.node if node.op_type == "Add")
    return drop_unused(model)


class _Shift:
    """An Add of one number for each channel, or for all, to an activation; or any other, which is not moved."""

    def __init__(self, model: onnx.ModelProto, node: NodeProto) -> None:
        self._graph, self._node = model.graph, node
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers = {name: other for other in model.graph.node for name in other.output}
        self._uses = Counter(name for other in model.graph.node for name in other.input)
        self._uses.update(value.name for value in model.graph.output)

    def move(self) -> bool:
        """Whether it was moved; what it made is then read by nothing."""
        found = self._split(self._node)
        if found is None or not self._uses[self._node.output[0]]:
            return False
        source, shift = found
        return self._into_sum(source, shift) or self._into_readers(source, shift)

    def _split(self, node: NodeProto) -> tuple[str, TensorProto] | None:
        """The activation and the constant that an Add has, of one number for each channel."""
        for source, other in (node.input, reversed(node.input)):
            constant = self._constants.get(other)
            if constant is not None and source not in self._constants:
                shape = list(constant.dims)
                per_channel = len(shape) in (3, 4) and shape[-2:] == [1, 1] and shape[:-3] in ([], [1])
                return (source, constant) if per_channel or shape == [] else None
        return None

    def _layer(self, name: str) -> NodeProto | None:
        """What makes a value that nothing else reads, if it is a layer with a constant bias, or with none."""
        maker = self._makers.get(name)
        if maker is None or maker.op_type not in _BIASED or self._uses[name] != 1:
            return None
        if maker.input[1] not in self._constants:
            return None
        bias = maker.input[2] if len(maker.input) > 2 else ""
        return maker if not bias or bias in self._constants else None

    def _into_sum(self, source: str, shift: TensorProto) -> bool:
        """Into a layer in front of the sum that the shift is added to."""
        maker = self._makers.get(source)
        if maker is None or maker.op_type != "Add" or self._uses[source] != 1:
            return False
        layer = next(filter(None, map(self._layer, maker.input)), None)
        if layer is None:
            return False
        self._add(layer, shift)
        self._replace(self._node.output[0], source)
        return True

    def _into_readers(self, source: str, shift: TensorProto) -> bool:
        """Into what reads the shifted value, all of it; not from a layer that has it in its bias anyway."""
        result = self._node.output[0]
        maker = self._makers.get(source)
        readers = [node for node in self._graph.node if result in node.input]
        if (maker is not None and maker.op_type in _BIASED) or self._uses[result] != len(readers):
            return False
        layers: list[NodeProto | None] = []
        for node in readers:
            others = [name for name in node.input if name != result]
            layer = self._layer(others[0]) if node.op_type == "Add" and others else None
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
            node.input[place] = self._constant(f"{node.name}/shift", total)
        self._replace(result, source)
        return True

    def _add(self, layer: NodeProto, shift: TensorProto) -> None:
        """``shift`` to the bias of a layer."""
        place = _BIASED[layer.op_type]
        channels = self._constants[layer.input[1]].dims[0]
        bias = np.broadcast_to(numpy_helper.to_array(shift).reshape(-1), channels)
        if len(layer.input) > place and layer.input[place]:
            bias = bias + numpy_helper.to_array(self._constants[layer.input[place]])
        inputs = [*layer.input[:place], self._constant(f"{layer.name}/bias", bias), *layer.input[place + 1:]]
        del layer.input[:]
        layer.input.extend(inputs)

    def _constant(self, name: str, array: np.ndarray) -> str:
        taken = self._constants.keys() | self._uses.keys() | self._makers.keys()
        name = unique(name, taken)
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        self._constants[name] = self._graph.initializer[-1]
        return name

    def _replace(self, old: str, new: str) -> None:
        for node in self._graph.node:
            for place, name in enumerate(node.input):
                if name == old:
                    node.input[place] = new
