"""Ranges of what functions alone read that are the same everywhere beyond some value, as a Sigmoid is: what lies there
needs no steps, however far samples reach.
"""

from collections.abc import Mapping
from math import inf

import onnx
from onnx import NodeProto

from gen.onnx.index import GraphIndex
from gen.quantize.plan import SHAPING
from gen.quantize.ranges import Distribution

__all__ = ["bound_saturated", "saturation"]

#: Operator -> where it is next to its limits, to a tenth of a step of eight bits of its result.
_SATURATED = {"Sigmoid": (-8.0, 8.0), "Tanh": (-4.0, 4.0), "Erf": (-2.5, 2.5)}
#: What gives its readers values of a tensor as they are.
_MOVING = (*SHAPING, "Concat", "Slice", "Split", "Gather")
_EVERYWHERE = -inf, inf


def saturation(model: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    """Value -> between what all that is made of it differs, where that is not everywhere."""
    index, needed = GraphIndex(model), dict[str, tuple[float, float]]()
    inputs = (value.name for value in model.graph.input)
    for name in (*(name for node in reversed(model.graph.node) for name in node.output), *inputs):
        ends = [_needed(reader, needed) for reader in index.readers[name]]
        needed[name] = _EVERYWHERE if name in index.outputs or not ends else _union(ends)
    return {name: ends for name, ends in needed.items() if ends != _EVERYWHERE}


def bound_saturated(limits: Mapping[str, tuple[float, float]], found: Mapping[str, Distribution]
                    ) -> dict[str, tuple[float, float]]:
    """The ranges of tensors that samples lead beyond their ``limits``."""
    ranges = {}
    for name in limits.keys() & found.keys():
        (low, high), of = limits[name], found[name]
        if of.low < low or high < of.high:
            ranges[name] = min(max(of.low, low), 0.0), max(min(of.high, high), 0.0)
    return ranges


def _needed(reader: NodeProto, needed: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Between what a node tells the values that it reads from each other."""
    if reader.op_type in _MOVING:
        return _union([needed[name] for name in reader.output if name])
    return _SATURATED.get(reader.op_type, _EVERYWHERE)


def _union(ends: list[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, high in ends), max(high for low, high in ends)
