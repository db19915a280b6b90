"""Sums that are divided by the number of what they add, as JAX and others write means."""

from collections.abc import Iterator
from math import isclose, prod

import numpy as np
from onnx import NodeProto

from gen.quantize.opsets import opset_of
from gen.quantize.rewriting import Rewriting

__all__ = ["Means"]

#: The first opset whose ReduceMean has its axes as an input.
_AXES_OPSET = 18


class Means(Rewriting):
    """ReduceMean in the place of a ReduceSum along known axes that nothing else reads, and a Div or Mul after it."""

    OPERATORS = frozenset(("Div", "Mul"))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        for place in (0, 1) if node.op_type == "Mul" else (0,):
            total, number = self._made(node.input[place], "ReduceSum"), self._number(node.input[1 - place])
            if (total is None or number is None or number.size != 1 or self._index.uses(total.output[0]) != 1
                    or self._shapes.get(node.output[0]) != self._shapes.get(total.output[0])):
                continue
            attributes, shape = self._attributes(total), self._shapes.get(total.input[0], [])
            given = total.input[1] if len(total.input) > 1 else ""
            default = () if attributes.get("noop_with_empty_axes") else range(len(shape))
            axes = self._number(given) if given else np.array(attributes.get("axes", default))
            if axes is None or not axes.size or axes.min() < -len(shape) or axes.max() >= len(shape):
                continue
            along = [int(axis) for axis in axes.reshape(-1)]
            count = prod(shape[axis] for axis in along)
            factor = 1 / number.item() if node.op_type == "Div" and number.item() else number.item()
            if number.dtype != np.float32 or not count or not isclose(factor * count, 1, rel_tol=1e-6):
                continue
            kept = attributes.get("keepdims", 1)
            inputs, named = ((self._constant(node.name, np.array(along)),), {}) if opset_of(
                self._model) >= _AXES_OPSET else ((), {"axes": along})
            yield self._node(node, "ReduceMean", total.input[0], *inputs, result=node.output[0], keepdims=kept, **named)
            return
