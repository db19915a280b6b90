"""Transposes of inputs in front of what is done to single values of them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from gen.onnx.names import unique
from gen.onnx.passes.constants import constant_of

__all__ = ["ELEMENTWISE", "exchanged", "hoist_transposes", "taken_names", "turned_constants"]

#: Operators between an input and a Transpose at most, for time.
_MOST = 16
#: Operators that compute each value from one of their input's in its place, and constants.
ELEMENTWISE = ("Identity", "Add", "Sub", "Mul", "Div", "Relu", "Clip")


def hoist_transposes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Transpose after the normalisation or the padding of an input -> one that is in front of them.

    Models from frameworks that have channels last begin so. After the Transpose channels lie as the machine has them,
    and constants for each channel go into the first layer.
    """
    while (found := _next(model.graph)) is not None:
        _swap(model.graph, *found)
    return model


def _next(graph: onnx.GraphProto) -> tuple[NodeProto, NodeProto, list[int]] | None:
    """An operator on what is nothing but an input so far, the Transpose that alone reads its result, and its axes."""
    constants = {tensor.name for tensor in graph.initializer}
    readers = Counter([*(name for node in graph.node for name in node.input), *(out.name for out in graph.output)])
    #: Value -> the input's axes, and how many operators it is away.
    early = {value.name: (len(value.type.tensor_type.shape.dim), 0) for value in graph.input
             if value.name not in constants}
    makers: dict[str, NodeProto] = {}
    for node in graph.node:
        maker = makers.get(node.input[0]) if node.input else None
        if node.op_type == "Transpose" and maker is not None and readers[node.input[0]] == 1:
            perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
            if (perm[:1] == [0] and len(perm) == early[node.input[0]][0]
                    and turned_constants(graph, maker, perm) is not None):
                return maker, node, perm
        varying = [name for name in node.input if name in early]
        if len(varying) == len(node.output) == 1 and node.op_type in (*ELEMENTWISE, "Pad"):
            axes, away = early[varying[0]]
            if away < _MOST:
                early[node.output[0]] = axes, away + 1
                makers[node.output[0]] = node
    return None


def turned_constants(graph: onnx.GraphProto, node: NodeProto, perm: Sequence[int]) -> dict[int, np.ndarray] | None:
    """Operand number -> the constant that stands there after a Transpose; None for what cannot be told."""
    arrays = {n: array for n, name in enumerate(node.input)
              if name and (array := constant_of(graph, name)) is not None}
    if sum(bool(name) for name in node.input) != len(arrays) + 1:
        return None
    if node.op_type == "Pad":
        return _turned_pads(arrays, perm) if len(node.input) > 1 and 0 not in arrays else None
    if any(array.ndim > len(perm) for array in arrays.values()):
        return None
    return {n: array if array.size == 1 else array[(None,) * (len(perm) - array.ndim)].transpose(perm)
            for n, array in arrays.items()}


def _turned_pads(arrays: dict[int, np.ndarray], perm: Sequence[int]) -> dict[int, np.ndarray] | None:
    """Those of a Pad: of all axes, or of the ones that it names."""
    pads, axes = arrays.get(1), arrays.get(3)
    if pads is None:
        return None
    if axes is not None:
        return {**arrays, 3: np.array([list(perm).index(int(axis) % len(perm)) for axis in axes], axes.dtype)}
    if pads.size != 2 * len(perm):
        return None
    return {**arrays, 1: pads.reshape(2, -1)[:, list(perm)].reshape(-1)}


def exchanged(graph: onnx.GraphProto, first: NodeProto, second: NodeProto, before: NodeProto, after: NodeProto) -> None:
    """``before`` and ``after`` in place of two operators, of which the second alone reads what the first makes."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.output[:1] == second.output[:1]:
            nodes += [before, after]
        elif node.output[:1] != first.output[:1]:
            nodes.append(node)
    kept = [value for value in graph.value_info if value.name != first.output[0]]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.value_info.extend(kept)


def taken_names(graph: onnx.GraphProto) -> set[str]:
    """Of nodes and values, which new ones must differ from."""
    return {name for node in graph.node for name in (node.name, *node.input, *node.output)} | {
        tensor.name for tensor in graph.initializer}


def _swap(graph: onnx.GraphProto, maker: NodeProto, transpose: NodeProto, perm: Sequence[int]) -> None:
    """``transpose`` in front of ``maker``; what comes of both keeps its name."""
    arrays = turned_constants(graph, maker, perm)
    assert arrays is not None
    taken = taken_names(graph)
    place = next(n for n, name in enumerate(maker.input) if name and n not in arrays)
    turned = unique(f"{maker.input[place]}/transposed", taken)
    inputs = list(maker.input)
    for n, array in arrays.items():
        if array.size > 1:
            inputs[n] = unique(f"{maker.input[n]}/transposed", taken | {turned})
            taken.add(inputs[n])
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), inputs[n]))
    before = helper.make_node("Transpose", [maker.input[place]], [turned], name=transpose.name, perm=perm)
    inputs[place] = turned
    after = NodeProto()
    after.CopyFrom(maker)
    after.input[:], after.output[:] = inputs, transpose.output
    exchanged(graph, maker, transpose, before, after)
