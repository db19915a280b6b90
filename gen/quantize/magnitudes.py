"""Squares whose sum becomes a root or a logarithm, as in a spectrum: they stay float.

Eight bits of a square are four of its root, and values that are small beside the largest become zero, of which a
logarithm is none. Nothing of it is a layer's work: what the root reads is quantised before it is squared, and what it
gives after it.
"""

import onnx
from onnx import NodeProto

from gen.onnx.index import GraphIndex
from gen.quantize.plan import SHAPING

__all__ = ["magnitudes"]

#: What sums squares, or moves them.
_SUMS = ("Add", "ReduceSum", *SHAPING)
#: What has digits of a small square that eight bits do not have.
_ENDS = ("Sqrt", "Log")


def magnitudes(model: onnx.ModelProto) -> dict[str, frozenset[str]]:
    """Root or logarithm -> the nodes from the squares to it; not where that is a divisor, as in norms."""
    index, found = GraphIndex(model), dict[str, frozenset[str]]()
    for node in model.graph.node:
        root = node.op_type in _ENDS or node.op_type == "Pow" and _constant(index, node.input[1]) == 0.5
        if root and not any(_divides(reader, node.output[0]) for reader in index.readers[node.output[0]]):
            if nodes := _squared(index, node):
                found[node.name] = nodes
    return found


def _squared(index: GraphIndex, end: NodeProto) -> frozenset[str]:
    """The nodes up to ``end`` that are nothing but sums of squares; none if there is anything else in it."""
    nodes, waiting, squares = {end.name}, [end.input[0]], False
    while waiting:
        name = waiting.pop()
        if index.number(name) is not None:
            continue
        maker = index.makers.get(name)
        if maker is None:
            return frozenset()
        if _is_square(index, maker):
            squares = True
        elif maker.op_type in _SUMS:
            waiting += maker.input
        else:
            return frozenset()
        nodes.add(maker.name)
    return frozenset(nodes if squares else ())


def _is_square(index: GraphIndex, node: NodeProto) -> bool:
    return (node.op_type == "Mul" and node.input[0] == node.input[1]
            or node.op_type == "Pow" and _constant(index, node.input[1]) == 2)


def _constant(index: GraphIndex, name: str) -> float | None:
    number = index.number(name)
    return float(number.flat[0]) if number is not None and number.size == 1 else None


def _divides(reader: NodeProto, name: str) -> bool:
    return reader.op_type == "Reciprocal" or reader.op_type == "Div" and name in reader.input[1:]
