"""Quantised values that nodes pick, which are quantised still."""

from collections.abc import Collection, Mapping

import onnx
from onnx import NodeProto, helper

from gen.onnx.index import GraphIndex
from gen.onnx.passes.hoist_quantisation import single_numbers

__all__ = ["keep_quantisation"]

#: What has layers for quantised values alone.
_NEED = ("AveragePool", "Concat", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "MatMul", "MaxPool", "Resize",
         "Upsample")


def keep_quantisation(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with QuantizeLinear and DequantizeLinear after what only picks values of a DequantizeLinear, or puts
    those of several of one scale together, where a node needs them: with the same scale, they change nothing.

    Brevitas leaves them out after pools and enlargements.
    """
    graph = model.graph
    if not any(node.op_type == "DequantizeLinear" for node in graph.node):
        return model
    index, single = GraphIndex(model), single_numbers(graph)
    makers = index.makers
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        found = _source(node, makers, single)
        later = [reader for reader in index.readers[node.output[0]] if reader.op_type != "QuantizeLinear"]
        if found is None or not any(reader.op_type in _NEED for reader in later):
            continue
        quantised, kept = (index.name(f"{node.output[0]}/{what}") for what in ("quantised", "kept"))
        pair = [helper.make_node(op, [source, *found.input[1:]], [result], name=result) for op, source, result in (
            ("QuantizeLinear", node.output[0], quantised), ("DequantizeLinear", quantised, kept))]
        nodes += pair
        makers[kept] = pair[1]
        for reader in later:
            for place, name in enumerate(reader.input):
                if name == node.output[0]:
                    reader.input[place] = kept
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)
    return model


def _source(node: NodeProto, makers: Mapping[str, NodeProto], single: Collection[str]) -> NodeProto | None:
    """A DequantizeLinear of one scale, whose values a node picks; None for any other node."""
    picked = node.input if node.op_type == "Concat" else node.input[:1] if _picks(node) else []
    found = [makers[name] for name in picked if name in makers and makers[name].op_type == "DequantizeLinear"]
    if not found or len(found) < len(picked) or len({tuple(one.input[1:]) for one in found}) > 1:
        return None
    return found[0] if set(found[0].input[1:]) <= set(single) else None


def _picks(node: NodeProto) -> bool:
    if node.op_type == "MaxPool":
        return len(node.output) == 1
    mode = next((attribute.s for attribute in node.attribute if attribute.name == "mode"), b"nearest")
    return node.op_type in ("Resize", "Upsample") and mode == b"nearest"
