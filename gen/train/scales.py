"""Scales of a quantised model that are learnt: learned step size quantisation (LSQ; Esser and others, ICLR 2020).

With rounding whose gradient passes through, the gradient of ``(clamp(round(x / s) + z) - z) * s`` by ``s`` is LSQ's as
it stands: the rounded number less x / s within the range, the range's end beyond it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from gen.prune.layers import ModelView

__all__ = ["Scales", "find_scales", "gentle"]

#: The largest integer of a step, by which LSQ divides gradients of scales.
_LARGEST = 127
#: No scale is less.
_LEAST = 1e-8


@dataclass(frozen=True)
class Scales:
    """``learnt``: initializers of scales, of activations and weights. ``biases``: that of a layer's bias -> those of
    its input and its weights, whose product it is.
    """

    learnt: frozenset[str] = frozenset()
    biases: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def find_scales(view: ModelView) -> Scales:
    """Of a model in the form QDQ. Activations whose two operators have scales of different names keep them, and so do
    the weights of a layer with a bias whose input is not known to be quantised.
    """
    makers, constants = view.makers, view.constants
    learnt = {node.input[1] for node in view.model.graph.node if node.op_type == "DequantizeLinear"
              and node.input[1] in constants and (
                  node.input[0] in constants or (
                      node.input[0] in makers and makers[node.input[0]].input[1] == node.input[1]))}
    biases: dict[str, tuple[str, str]] = {}
    fixed = set()
    for node in view.model.graph.node:
        bias = makers.get(node.input[2]) if node.op_type in ("Conv", "Gemm") and len(node.input) > 2 else None
        if bias is None or bias.op_type != "DequantizeLinear":
            continue
        source, weights = makers.get(node.input[0]), makers.get(node.input[1])
        fixed.add(bias.input[1])
        if source is None or weights is None or {source.op_type, weights.op_type} != {"DequantizeLinear"}:
            fixed |= {weights.input[1]} if weights is not None and weights.op_type == "DequantizeLinear" else set()
        else:
            biases[bias.input[1]] = (source.input[1], weights.input[1])
    return Scales(frozenset(learnt - fixed), biases)


def gentle(scale: Tensor, values: int) -> Tensor:
    """A scale that is learnt, above 0, with the gradient that LSQ gives one by which so many ``values`` are divided."""
    part = 1 / math.sqrt(max(1, values) * _LARGEST)
    scale = scale.abs().clamp(min=_LEAST)
    return scale * part + (scale - scale * part).detach()
