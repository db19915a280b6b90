"""Values that layers with quantised weights read in floating point, in a model that is quantised in part.

Such are inputs of a model whose author quantised the results of layers alone, or the weights, and what the processor
makes of inputs before the first layer. Samples say in which range they are.
"""

from collections.abc import Collection, Mapping

import onnx
from onnx import NodeProto, helper

from cores.errors import Reason
from gen.onnx.model import PRODUCTS, Model
from gen.onnx.names import unique
from gen.partition.reconstruct import Ranges, range_constants

__all__ = ["float_operands", "quantise_operands"]

#: Why the accelerator does not take a node that reads such a value.
_FLOAT = ("float-input", "made-by-processor")


def float_operands(model: Model, host: Mapping[str, Reason]) -> dict[str, list[str]]:
    """Value -> the nodes of ``host`` that would be layers if it were quantised: their weights are."""
    makers = {name: node for node in model.nodes for name in node.outputs}
    found: dict[str, list[str]] = {}
    for node in model.nodes:
        reason = host.get(node.name)
        if reason is None or reason.code not in _FLOAT or node.op not in PRODUCTS or len(node.inputs) < 2:
            continue
        weights = makers.get(node.inputs[1])
        if weights is not None and weights.op == "DequantizeLinear" and weights.inputs[0] in model.constants:
            found.setdefault(node.inputs[0], []).append(node.name)
    return found


def quantise_operands(model: onnx.ModelProto, operands: Mapping[str, Collection[str]], ranges: Ranges) -> None:
    """Quantises what these nodes of ``model`` read of ``operands``, by the ranges that samples have."""
    graph = model.graph
    taken = {n for node in graph.node for n in (node.name, *node.input, *node.output)}
    taken |= {tensor.name for tensor in graph.initializer}
    pairs: dict[str, list[NodeProto]] = {}
    for name, (low, high) in ranges(model, list(operands)).items():
        numbers = range_constants(graph, name, low, high, taken)
        names = [unique(f"{name}/{what}", taken) for what in ("quantized", "dequantized")]
        taken.update(names)
        pairs[name] = [
            helper.make_node("QuantizeLinear", [name, *numbers], names[:1], name=names[0]),
            helper.make_node("DequantizeLinear", [names[0], *numbers], names[1:], name=names[1])]
        for node in graph.node:
            if node.name in operands[name]:
                node.input[0] = names[1]
    made = {name for node in graph.node for name in node.output}
    nodes = [new for name, pair in pairs.items() if name not in made for new in pair]
    for node in graph.node:
        nodes += [node, *(new for name in node.output for new in pairs.get(name, ()))]
    del graph.node[:]
    graph.node.extend(nodes)
