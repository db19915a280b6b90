"""Shapes of a graph, stated as what makes what, and where a model has them.

A pattern tells for a value in which ways it is made so: of each, what the pattern's labels stand for there. A label
that occurs again has to stand for the same value. It is compared from a value upwards, so that a pattern takes as long
as it is large, wherever it is tried.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from onnx import NodeProto

from gen.onnx.index import GraphIndex

__all__ = ["Found", "Pattern", "any_of", "constant", "first", "op", "value"]

#: Label -> the name of a value.
Found = Mapping[str, str]
Pattern = Callable[[GraphIndex, str, Found], Iterator[Found]]

_COMMUTATIVE = ("Add", "Mul", "Max", "Min")


def value(label: str) -> Pattern:
    """Any value, called ``label``."""
    def matches(index: GraphIndex, name: str, found: Found) -> Iterator[Found]:
        if found.get(label, name) == name:
            yield {**found, label: name}
    return matches


def constant(label: str = "", test: Callable[[np.ndarray], bool] = lambda array: True) -> Pattern:
    """A constant, called ``label``, of which ``test`` holds."""
    def matches(index: GraphIndex, name: str, found: Found) -> Iterator[Found]:
        array = index.number(name)
        if array is not None and test(array):
            yield {**found, label: name} if label else found
    return matches


def op(operators: str, *operands: Pattern, label: str = "", alone: bool = False,
       test: Callable[[GraphIndex, NodeProto], bool] = lambda index, node: True) -> Pattern:
    """The result, called ``label``, of a node of one of ``operators`` ("Max Relu") whose first inputs are
    ``operands``; of one that commutes all inputs, in either order. ``alone``: one node reads it, once. ``test`` has to
    hold of the node.
    """
    names = operators.split()

    def matches(index: GraphIndex, name: str, found: Found) -> Iterator[Found]:
        node = index.made(name, *names)
        if (node is None or len(node.input) < len(operands) or alone and index.uses(name) != 1
                or found.get(label, name) != name or not test(index, node)):
            return
        found = {**found, label: name} if label else found
        commutes = node.op_type in _COMMUTATIVE
        if commutes and len(node.input) > len(operands):
            return
        for given in (operands, operands[::-1]) if commutes else (operands,):
            yield from _all(index, given, node.input, found)
    return matches


def any_of(*patterns: Pattern) -> Pattern:
    """What one of them matches, the first ones first."""
    def matches(index: GraphIndex, name: str, found: Found) -> Iterator[Found]:
        for pattern in patterns:
            yield from pattern(index, name, found)
    return matches


def first(index: GraphIndex, pattern: Pattern, name: str) -> Found | None:
    """The first way in which a value is as ``pattern`` says; None where there is none."""
    return next(pattern(index, name, {}), None)


def _all(index: GraphIndex, patterns: tuple[Pattern, ...], names: list[str], found: Found) -> Iterator[Found]:
    if not patterns:
        yield found
        return
    for one in patterns[0](index, names[0], found):
        yield from _all(index, patterns[1:], names[1:], one)
