"""Models that are quantised while they run, as the float models that they stand for.

onnxruntime's `quantize_dynamic` puts a DynamicQuantizeLinear in front of products of integers, whose results are
multiplied by the scales that it gives. With scales of 1, products of float numbers stand in their place.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.held import constants_of
from gen.onnx.index import GraphIndex
from gen.onnx.model import MICROSOFT
from gen.onnx.passes.drop_unused import drop_unused

__all__ = ["of_running", "undo_running"]

_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_LSTM = "DynamicQuantizeLSTM"
#: Inputs of that, beside those that an LSTM has: scales and zero points of its two weights.
_PLAIN, _OF_WEIGHTS = 8, {1: (8, 9), 2: (10, 11)}

Constants = Callable[[str], np.ndarray | None]


def of_running(model: onnx.ModelProto) -> Iterator[NodeProto]:
    """The nodes that quantise while the model runs, or multiply what was, and that `undo_running` undoes."""
    quantised, products = _found(model)
    return (node for node in model.graph.node if node.output and (
        node.output[0] in quantised or node.output[0] in products))


def undo_running(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with float products where it has those of what is quantised while it runs; it stays as it is."""
    constants = constants_of(model.graph)
    quantised, products = _found(model)
    if not quantised and not any(_is_lstm(node, constants) for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    nodes = list[NodeProto]()
    for node in graph.node:
        first = node.output[0] if node.output else ""
        if first in quantised:
            graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), node.output[1]))
            continue
        if first in products:
            factors = [quantised.get(name) or _added(graph, f"{first}/factor{place}", _centred(node, place, constants))
                       for place, name in enumerate(node.input[:2])]
            node = _plain(node, _PRODUCTS[node.op_type], factors)
        elif _is_lstm(node, constants):
            node = _lstm(node, constants, graph)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]     # products were int32
    return drop_unused(result)


def _found(model: onnx.ModelProto) -> tuple[Mapping[str, str], frozenset[str]]:
    """Values that are quantised as they come -> what they are made of; and the products of integers. Those of which
    nothing else is read, and which are made of nothing else.
    """
    index = GraphIndex(model)
    graph, constants, readers, ends = index.graph, index.number, index.readers, index.outputs
    makers = {node.output[0]: node for node in graph.node if node.op_type == "DynamicQuantizeLinear"}
    products = {node.output[0]: node for node in graph.node if node.op_type in _PRODUCTS}

    def is_product(node: NodeProto) -> bool:
        for place, name in enumerate(node.input[:2]):
            point = node.input[place + 2] if len(node.input) > place + 2 else ""
            if name in makers:
                if point != makers[name].output[2]:
                    return False
            elif constants(name) is None or point and constants(point) is None:
                return False
        return (not ends.intersection(node.output) and not makers.keys().isdisjoint(node.input[:2])
                and all(reader.op_type == "Cast" and all(a.i == TensorProto.FLOAT for a in reader.attribute
                                                         if a.name == "to") for reader in readers[node.output[0]]))

    def is_maker(node: NodeProto) -> bool:
        value, scale, point = node.output
        return (ends.isdisjoint(node.output) and all(reader.op_type == "Mul" for reader in readers[scale])
                and all(reader.output[0] in products for name in (value, point) for reader in readers[name]))

    while True:
        before = len(makers) + len(products)
        products = {name: node for name, node in products.items() if is_product(node)}
        makers = {name: node for name, node in makers.items() if is_maker(node)}
        if len(makers) + len(products) == before:
            return {name: node.input[0] for name, node in makers.items()}, frozenset(products)


def _centred(node: NodeProto, place: int, constants: Constants) -> np.ndarray:
    """A constant factor without its zero point, which a matrix may have for each row if it comes first, else for each
    column, and a kernel for each output.
    """
    array = constants(node.input[place])
    point = constants(node.input[place + 2]) if len(node.input) > place + 2 and node.input[place + 2] else np.array(0)
    assert array is not None and point is not None
    if point.size > 1 and point.ndim == 1 and (node.op_type == "ConvInteger" or place == 0):
        point = point.reshape(-1, *[1] * (array.ndim - 1))
    return array.astype(np.float32) - point.astype(np.float32)


def _is_lstm(node: NodeProto, constants: Constants) -> bool:
    return node.op_type == _LSTM and node.domain == MICROSOFT and len(node.input) > max(
        place for others in _OF_WEIGHTS.values() for place in others) and all(
        constants(node.input[place]) is not None
        for weights, others in _OF_WEIGHTS.items() for place in (weights, *others))


def _lstm(node: NodeProto, constants: Constants, graph: onnx.GraphProto) -> NodeProto:
    """Its weights are (directions, inputs, gates), with a scale for each direction, or for each gate, too."""
    inputs = list(node.input)[:_PLAIN]
    for place, others in _OF_WEIGHTS.items():
        array, scale, point = (constants(node.input[number]) for number in (place, *others))
        assert array is not None and scale is not None and point is not None
        scale, point = (each.astype(np.float32).reshape(len(array), 1, -1) for each in (scale, point))
        inputs[place] = _added(graph, f"{node.name}/factor{place}",
                               ((array.astype(np.float32) - point) * scale).transpose(0, 2, 1))
    return _plain(node, "LSTM", inputs)


def _plain(node: NodeProto, op: str, inputs: list[str]) -> NodeProto:
    plain = helper.make_node(op, inputs, list(node.output), name=node.name)
    plain.attribute.extend(node.attribute)
    return plain


def _added(graph: onnx.GraphProto, name: str, array: np.ndarray) -> str:
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
    return name
