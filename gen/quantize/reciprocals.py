"""Ranges of reciprocals of what may be next to nothing."""

from collections.abc import Mapping

import numpy as np
import onnx

from gen.onnx.index import GraphIndex
from gen.quantize.quotients import is_guard
from gen.quantize.ranges import Distribution

__all__ = ["bound_reciprocals"]

#: Shares of the largest divisor that may be the least one of which a reciprocal is right, and steps of eight bits.
_LEAST, _STEPS = 2.0 ** -np.arange(0, 7.5, 0.5), 255


def bound_reciprocals(model: onnx.ModelProto, found: Mapping[str, Distribution]) -> dict[str, tuple[float, float]]:
    """The ranges of reciprocals of what is guarded against zero, which samples may have at any size: those with the
    least relative error of clipping and rounding.
    """
    index = GraphIndex(model)
    ranges: dict[str, tuple[float, float]] = {}
    for node in model.graph.node:
        before = index.makers.get(node.input[0]) if node.op_type == "Reciprocal" else None
        if (before is None or not {node.input[0], node.output[0]} <= found.keys()
                or not is_guard(before, index.constants)):
            continue
        divisor, inverse = (found[name] for name in (node.input[0], node.output[0]))
        if 0 <= divisor.low and 0 < inverse.low < inverse.high:
            ranges[node.output[0]] = 0.0, min(inverse.high, 1 / _least(divisor))
    return ranges


def _least(divisor: Distribution) -> float:
    """The divisor below which reciprocals are clipped."""
    sizes = (np.arange(len(divisor.counts) // 2) + 0.5) / (len(divisor.counts) // 2)
    counts = divisor.counts[len(sizes):]

    def error(least: float) -> float:
        return float(counts @ np.where(sizes < least, (1 - sizes / least)**2, (sizes / least / _STEPS)**2 / 12))

    return min(_LEAST, key=error) * divisor.high
