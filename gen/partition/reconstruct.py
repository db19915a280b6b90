"""Quantisation where the lack of it would leave layers to the processor.

A layer of the accelerator ends in a quantised tensor. Where the processor reads its result as it is, the layer could
not be on the accelerator, nor whatever else reads it. So the result is quantised, and dequantised for the processor:

* *Several paths*: the model quantises the result for other readers. All get that one.
* *One path*: what reads the result only moves values to a QuantizeLinear. Quantising in front of the move is the same.

Both change what the processor gets by rounding alone. A result for which the model knows no scale stays as it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import onnx
from onnx import NodeProto, helper

from gen.onnx.names import unique
from gen.onnx.passes.hoist_quantisation import MOVING, parameters

__all__ = ["reconstruct"]


def reconstruct(model: onnx.ModelProto, unquantised: Iterable[str]) -> list[str]:
    """Quantises what can be of the values ``unquantised`` in ``model``. Returns those."""
    graph = model.graph
    #: Value -> nodes, and None for an output of the model.
    readers: dict[str, list[NodeProto | None]] = defaultdict(list, {value.name: [None] for value in graph.output})
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    taken = {n for node in graph.node for n in (node.name, *node.input, *node.output)}
    added: dict[str, list[NodeProto]] = {}      # value -> its pair of nodes
    for name in unquantised:
        like = _quantisation(name, readers)
        if like is not None:
            names = {what: unique(f"{name}/{what}", taken) for what in ("unquantised", "quantized", "dequantized")}
            taken.update(names.values())
            quantize = NodeProto()
            quantize.CopyFrom(like)
            quantize.name = quantize.output[0] = names["quantized"]
            quantize.input[0] = names["unquantised"]
            dequantize = helper.make_node("DequantizeLinear", [names["quantized"], *like.input[1:]], [name],
                                          name=names["dequantized"], domain=like.domain)
            added[name] = [quantize, dequantize]
    _insert(graph, added)
    return list(added)


def _quantisation(name: str, readers: Mapping[str, list[NodeProto | None]]) -> NodeProto | None:
    """The QuantizeLinear that a value leads to, at once or behind nodes that only move it."""
    nodes = [node for node in readers[name] if node is not None and node.input[0] == name]
    direct = [node for node in nodes if node.op_type == "QuantizeLinear"]
    if direct:
        return direct[0]
    ends = [_quantisation(node.output[0], readers) if node.op_type in MOVING else None for node in nodes]
    if len(nodes) < len(readers[name]):
        return None
    found = {parameters(end) if end else None for end in ends}
    return ends[0] if len(found) == 1 else None


def _insert(graph: onnx.GraphProto, added: Mapping[str, list[NodeProto]]) -> None:
    """Each pair behind the node whose result it quantises, which gives up its name for that of the pair's."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in added:
                node.output[place] = added[name][0].input[0]
                nodes += added[name]
    del graph.node[:]
    # A scale may be that of a Constant behind what reads it now.
    graph.node.extend(sorted(nodes, key=lambda node: node.op_type != "Constant"))
