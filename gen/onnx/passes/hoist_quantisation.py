"""Quantisation in front of operators that only pick values."""

from collections import defaultdict
from math import prod

import onnx
from onnx import NodeProto, helper

from gen.onnx.names import unique

__all__ = ["MOVING", "common", "hoist_quantisation", "single_numbers"]

#: Operators whose inputs are tensors of the machine, and not results on the way to one.
_PICKING = ("MaxPool", "GlobalMaxPool", "Concat", "Resize", "Upsample")
#: Operators after which nothing is gained: tensors already, constants, and the padding of a Conv.
_KEPT = ("DequantizeLinear", "Constant", "Pad")
#: Operators that only move values.
MOVING = ("Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather", "DepthToSpace",
          "SpaceToDepth", "Tile", "Expand")
#: Operators that may stand between a picking one and its QuantizeLinear.
_BETWEEN = ("Relu", "Clip", *MOVING)


def hoist_quantisation(model: onnx.ModelProto) -> onnx.ModelProto:
    """A MaxPool, Concat or nearest Resize of results that only after it are quantised gets them quantised, alike.

    Quantising is monotone: the largest of quantised numbers is the largest number quantised. What stands after the
    operator stays there, as quantising once more changes nothing; Relu and Clip in between are monotone, too.
    """
    graph = model.graph
    taken = {n for node in graph.node for n in (node.name, *node.input, *node.output)}
    kept = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in _KEPT or (node.op_type in MOVING and not kept.isdisjoint(node.input[:1])):
            kept.update(node.output)
    single = single_numbers(graph)
    #: Value -> for each reader the QuantizeLinear that it leads to, None for one that leads to none.
    ends: dict[str, list[NodeProto | None]] = defaultdict(list, {output.name: [None] for output in graph.output})
    nodes: list[NodeProto] = []
    for node in reversed(graph.node):
        nodes.append(node)
        inputs = [name for name in node.input if name]
        if node.op_type == "QuantizeLinear":
            end = node if single.issuperset(inputs[1:]) else None
        elif node.op_type in (*_PICKING, *_BETWEEN) and len(node.output) == 1:
            end = common(ends[node.output[0]])
        else:
            end = None
        picked = inputs if node.op_type == "Concat" else inputs[:1]
        for place, name in enumerate(inputs):
            ends[name].append(end if place < len(picked) else None)
        if node.op_type in _PICKING and end is not None:
            for place, name in enumerate(picked):
                if name not in kept:
                    nodes += _pair(node, place, end, taken)
    if len(nodes) > len(graph.node):
        del graph.node[:]
        # A scale may be that of a Constant after what reads it now.
        graph.node.extend(sorted(reversed(nodes), key=lambda node: node.op_type != "Constant"))
    return model


def single_numbers(graph: onnx.GraphProto) -> set[str]:
    """Constants of one element."""
    return {tensor.name for tensor in graph.initializer if prod(tensor.dims) == 1} | {
        node.output[0] for node in graph.node if node.op_type == "Constant" for attribute in node.attribute
        if attribute.name == "value_float" or (attribute.name == "value" and prod(attribute.t.dims) == 1)}


def common(ends: list[NodeProto | None]) -> NodeProto | None:
    """The quantisation that all of ``ends`` are; None if they differ."""
    found = {_parameters(end) if end else None for end in ends}
    return ends[0] if len(found) == 1 else None


def _parameters(node: NodeProto) -> tuple[object, ...]:
    """What two QuantizeLinear have in common that quantise in the same way."""
    return node.domain, tuple(node.input[1:]), tuple(a.SerializeToString(deterministic=True) for a in node.attribute)


def _pair(node: NodeProto, place: int, like: NodeProto, taken: set[str]) -> list[NodeProto]:
    """QuantizeLinear as ``like`` and DequantizeLinear, last first, between an input of ``node`` and the node."""
    names = [unique(f"{node.name or node.output[0]}/{kind}{place}", taken) for kind in ("quantized", "dequantized")]
    taken.update(names)
    quantize = NodeProto()
    quantize.CopyFrom(like)
    quantize.name, quantize.input[0], quantize.output[0] = names[0], node.input[place], names[0]
    dequantize = helper.make_node(
        "DequantizeLinear", [names[0], *quantize.input[1:]], [names[1]], name=names[1], domain=like.domain)
    node.input[place] = names[1]
    return [dequantize, quantize]
