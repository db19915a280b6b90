"""Control flow as functions of what it reads.

A branch, or the body of a loop, reads values that are not listed as inputs of its node. All that asks who reads a value
would have to look into graphs within nodes; so each such node becomes the one node of a function, whose inputs are all
that it reads. onnxruntime and shape inference take it like any function.
"""

from collections.abc import Iterator

import onnx
from onnx import NodeProto, helper

from gen.onnx.inner import inner_graphs

__all__ = ["ENCLOSED", "disclose", "enclose", "enclosed"]

#: The domain of these functions; an operator of it is called as the one that it encloses, with a number after it.
ENCLOSED = "npugen.enclosed"
#: The first version of ONNX's files that has functions.
_IR_VERSION = 8


def enclose(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with a function in the place of each node that has graphs within it; of nodes within those none."""
    opsets = [entry for entry in model.opset_import if entry.domain != ENCLOSED]
    nodes = list[NodeProto]()
    for node in model.graph.node:
        if not any(inner_graphs(node)):
            nodes.append(node)
            continue
        read = list(dict.fromkeys(name for name in (*node.input, *_captured(node)) if name))
        made = [name for name in node.output if name]
        op = f"{node.op_type}_{len(model.functions)}"
        model.functions.append(helper.make_function(ENCLOSED, op, read, made, [node], opsets))
        nodes.append(helper.make_node(op, read, made, name=node.name, domain=ENCLOSED))
    if len(model.functions) and any(node.domain == ENCLOSED for node in nodes):
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.ir_version = max(model.ir_version, _IR_VERSION)
        if not any(entry.domain == ENCLOSED for entry in model.opset_import):
            model.opset_import.append(helper.make_opsetid(ENCLOSED, 1))
    return model


def disclose(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with the nodes that `enclose` has put into functions, in their places; other functions stay, those that
    a file has of the same domain among them.
    """
    held = {function.name: function for function in model.functions if function.domain == ENCLOSED
            and len(function.node) == 1 and any(inner_graphs(function.node[0]))}
    if not held:
        return model
    for node in model.graph.node:
        if node.domain == ENCLOSED and node.op_type in held:
            function = held[node.op_type]
            names = dict(zip((*function.input, *function.output), (*node.input, *node.output), strict=True))
            name = node.name
            node.CopyFrom(_renamed(function.node[0], names))
            node.name = name
    kept = [function for function in model.functions if function.domain != ENCLOSED or function.name not in held]
    del model.functions[:]
    model.functions.extend(kept)
    domains = {function.domain for function in kept}
    opsets = [entry for entry in model.opset_import if entry.domain != ENCLOSED or ENCLOSED in domains]
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    return model


def enclosed(node: NodeProto) -> str:
    """The operator that a node encloses; "" for others."""
    return node.op_type.rpartition("_")[0] if node.domain == ENCLOSED else ""


def _captured(node: NodeProto) -> Iterator[str]:
    """Values that graphs within a node read, and that are made outside of it."""
    for graph in inner_graphs(node):
        made = {value.name for value in (*graph.input, *graph.initializer)}
        made.update(sparse.values.name for sparse in graph.sparse_initializer)
        for inner in graph.node:
            yield from (name for name in (*inner.input, *_captured(inner)) if name not in made)
            made.update(inner.output)


def _renamed(node: NodeProto, names: dict[str, str]) -> NodeProto:
    """A copy that reads and makes values of other names. What is made within it hides a name from what is within."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for field in (copy.input, copy.output):
        for place, name in enumerate(field):
            field[place] = names.get(name, name)
    for graph in inner_graphs(copy):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        own |= {name for inner in graph.node for name in inner.output}
        outer = {old: new for old, new in names.items() if old not in own}
        inside = [_renamed(inner, outer) for inner in graph.node]
        del graph.node[:]
        graph.node.extend(inside)
    return copy
