"""Operators that stand for several (`gen.onnx.fused`), as those."""

from collections.abc import Collection

import onnx

from gen.onnx.fused import SPREADS, Fused, LaterError, UnsupportedError
from gen.onnx.fused.spread import Spreads
from gen.onnx.held import constants_of, zeros_of
from gen.onnx.passes.check_types import known_types

__all__ = ["spread_fused"]


def spread_fused(model: onnx.ModelProto, spreads: Spreads = SPREADS, kept: Collection[str] = ()) -> onnx.ModelProto:
    """The nodes that each stands for, in its place, where that form can be spread; the others stay, and nodes ``kept``.

    Shape inference stops at onnxruntime's operators, so once some are spread more can be.
    """
    while any(_key(node) in spreads for node in model.graph.node):
        if not _spread(model, spreads, kept):
            break
    return model


def _key(node: onnx.NodeProto) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def _spread(model: onnx.ModelProto, spreads: Spreads, kept: Collection[str]) -> bool:
    """Whether any node could be spread."""
    graph, nodes, constants = model.graph, list[onnx.NodeProto](), list[onnx.TensorProto]()
    shapes = {name: tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)
              for name, kind in known_types(model).items() if kind.tensor_type.HasField("shape")}
    taken = {n for node in graph.node for n in (node.name, *node.input, *node.output)}
    taken |= {tensor.name for tensor in graph.initializer}
    constant_of, zeros = constants_of(graph), zeros_of(graph)
    changed = False
    for node in graph.node:
        made = [node]
        if _key(node) in spreads and node.name not in kept:
            held = {name: constant_of(name) for name in node.input if name}
            known = {name: array for name, array in held.items() if array is not None}
            fused = Fused(node, known, shapes, taken, zeros)
            try:
                spreads[_key(node)](fused)
                made, changed = fused.nodes, True
                constants += fused.initializers
            except (LaterError, UnsupportedError, ValueError, IndexError, KeyError, TypeError):
                pass        # the handler says why
        nodes += made
    if changed:
        del graph.node[:]
        graph.node.extend(nodes)
        graph.initializer.extend(constants)
    return changed
