"""Ranges of what functions alone read that are the same everywhere beyond some value, as a Sigmoid is: what lies there
needs no steps, however far samples reach. That goes for what such a value is the sum of, too, as far beyond as the
other summand brings it back.
"""

from collections.abc import Mapping
from math import inf

import onnx
from onnx import NodeProto

from gen.onnx.index import GraphIndex
from gen.quantize.plan import SHAPING
from gen.quantize.ranges import Distribution

__all__ = ["bound_saturated", "saturation"]

Ends = tuple[float, float]

#: Operator -> where it is next to its limits, to a tenth of a step of eight bits of its result.
_SATURATED = {"Sigmoid": (-8.0, 8.0), "Tanh": (-4.0, 4.0), "Erf": (-2.5, 2.5)}
#: What gives its readers values of a tensor as they are.
_MOVING = (*SHAPING, "Concat", "Slice", "Split", "Gather")
_EVERYWHERE = -inf, inf
#: How much smaller the range of a sum may be than that of a summand: multipliers reach twice as far.
_SMALLER = 16


def saturation(model: onnx.ModelProto, found: Mapping[str, Distribution]) -> dict[str, Ends]:
    """Value -> between what all that is made of it differs, where that is not everywhere."""
    index, needed = GraphIndex(model), dict[str, Ends]()

    def of_reader(reader: NodeProto, name: str) -> Ends:
        if reader.op_type in _MOVING:
            return _union([needed[result] for result in reader.output if result])
        if reader.op_type == "Add" and len(set(reader.input)) == 2:
            (other,) = (operand for operand in reader.input if operand != name)
            return _without(needed[reader.output[0]], _reach(other, index, found))
        return _SATURATED.get(reader.op_type, _EVERYWHERE)

    inputs = (value.name for value in model.graph.input)
    for name in (*(name for node in reversed(model.graph.node) for name in node.output), *inputs):
        ends = [of_reader(reader, name) for reader in index.readers[name]]
        needed[name] = _EVERYWHERE if name in index.outputs or not ends else _union(ends)
    return {name: ends for name, ends in needed.items() if ends != _EVERYWHERE}


def bound_saturated(model: onnx.ModelProto, limits: Mapping[str, Ends], found: Mapping[str, Distribution]
                    ) -> dict[str, Ends]:
    """The ranges of tensors that samples lead beyond their ``limits``."""
    ranges = {name: (of.low, of.high) for name, of in found.items()}
    bounded: dict[str, Ends] = {}
    for node in model.graph.node:
        least = max((max(map(abs, ranges[name])) for name in node.input if name in ranges), default=0.0) / _SMALLER
        for name in (*node.input, *node.output):
            if name not in limits or name not in found or name in bounded:
                continue
            of, room = found[name], least if node.op_type == "Add" and name in node.output else 0.0
            low, high = min(limits[name][0], -room), max(limits[name][1], room)
            if of.low < low or high < of.high:
                ranges[name] = bounded[name] = min(max(of.low, low), 0.0), max(min(of.high, high), 0.0)
    return bounded


def _reach(name: str, index: GraphIndex, found: Mapping[str, Distribution]) -> Ends:
    """The lowest and highest value of a summand; everywhere of one that is not known."""
    if (number := index.number(name)) is not None and number.size:
        return float(number.min()), float(number.max())
    return (found[name].low, found[name].high) if name in found else _EVERYWHERE


def _without(ends: Ends, summand: Ends) -> Ends:
    return ends[0] - summand[1], ends[1] - summand[0]


def _union(ends: list[Ends]) -> Ends:
    return min(low for low, high in ends), max(high for low, high in ends)
