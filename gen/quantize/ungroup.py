"""Transposed convolutions in groups as those in one, whose weights have zeros for the other groups.

Their weights are (input channels, output channels of a group, ...), so that a scale along an axis is one of several
output channels. The machine leaves the zeros out or not, as it does in either case. Depthwise ones stay: their scales
go along the first axis.
"""

import numpy as np
import onnx
from onnx import NodeProto, helper

from gen.onnx.weights import MAX_WEIGHTS
from gen.quantize.rewriting import Rewriting

__all__ = ["ungroup"]


def ungroup(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with such ConvTransposes of constant weights."""
    if not any(node.op_type == "ConvTranspose" for node in model.graph.node):
        return model
    return _Ungrouping(model).run()


class _Ungrouping(Rewriting):
    def layers(self, node: NodeProto) -> list[NodeProto]:
        groups = self._attributes(node).get("group", 1) if node.op_type == "ConvTranspose" else 1
        weights = self._number(node.input[1]) if groups > 1 else None
        if weights is None or weights.shape[:2] == (groups, 1) or weights.size * groups > MAX_WEIGHTS:
            return [node]
        inputs, outputs, *kernel = weights.shape
        whole = np.zeros((groups, inputs // groups, groups, outputs, *kernel), weights.dtype)
        for group, part in enumerate(np.split(weights, groups)):
            whole[group, :, group] = part
        name = self._constant(node.name, whole.reshape(inputs, groups * outputs, *kernel))
        kept = [a for a in node.attribute if a.name != "group"]
        made = helper.make_node(node.op_type, [node.input[0], name, *node.input[2:]], node.output, name=node.name)
        made.attribute.extend(kept)
        return [made]
