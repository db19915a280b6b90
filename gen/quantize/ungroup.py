"""Transposed convolutions in groups as those in one, whose weights have zeros for the other groups.

Their weights are (input channels, output channels of a group, ...), so that a scale along an axis is one of several
output channels. The machine leaves the zeros out or not, as it does in either case. Depthwise ones stay: their scales
go along the first axis.
"""

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from gen.onnx.weights import MAX_WEIGHTS
from gen.quantize.rewriting import Rewriting

__all__ = ["Ungrouping"]


class Ungrouping(Rewriting):
    """Replaces such convolutions where their weights are constant."""

    OPERATORS = frozenset(("ConvTranspose",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        groups = self._attributes(node).get("group", 1)
        weights = self._number(node.input[1]) if groups > 1 else None
        if weights is None or weights.shape[:2] == (groups, 1) or weights.size * groups > MAX_WEIGHTS:
            return
        inputs, outputs, *kernel = weights.shape
        whole = np.zeros((groups, inputs // groups, groups, outputs, *kernel), weights.dtype)
        for group, part in enumerate(np.split(weights, groups)):
            whole[group, :, group] = part
        name = self._constant(node.name, whole.reshape(inputs, groups * outputs, *kernel))
        kept = [a for a in node.attribute if a.name != "group"]
        made = helper.make_node(node.op_type, [node.input[0], name, *node.input[2:]], node.output, name=node.name)
        made.attribute.extend(kept)
        yield made
