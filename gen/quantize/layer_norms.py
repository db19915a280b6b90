"""LayerNormalization that is written as its steps, as exporters write it in opsets that lack it.

(x - mean) / sqrt(mean of squares + epsilon), with a Mul and an Add of constants behind it, over the last axis or over
the channels of a map, which are brought last in front of it and back behind it.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, helper, version_converter

from gen.quantize.rewriting import Rewriting

__all__ = ["find_layer_norms"]

#: The first opset that has it.
_OPSET = 17


def find_layer_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with LayerNormalization in the place of such steps, in an opset that has it; as it is without any."""
    if not any(node.op_type == "Sqrt" for node in model.graph.node) or not _Steps(model).found:
        return model
    if max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")) < _OPSET:
        try:
            model = version_converter.convert_version(model, _OPSET)
        except Exception:      # a converter in C++ raises anything; the steps stay
            return model
    return _Steps(model).run()


class _Steps(Rewriting):
    """``found``: result of the last step -> input, axis, epsilon, scale and bias."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self.found = dict(filter(None, map(self._match, model.graph.node)))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.output[0] not in self.found:
            yield node
            return
        source, last, epsilon, scale, bias = self.found[node.output[0]]
        name, rank = node.name, len(self._shapes[source])
        result = node.output[0]
        if not last:
            forth = self._name(f"{name}/last")
            yield helper.make_node("Transpose", [source], [forth], name=forth, perm=[0, *range(2, rank), 1])
            source, result = forth, self._name(f"{name}/norm")
        constants = [self._constant(name, numbers) for numbers in (scale, bias)]
        yield helper.make_node("LayerNormalization", [source, *constants], [result], name=self._name(f"{name}/layer"),
                               axis=-1, epsilon=epsilon)
        if not last:
            yield helper.make_node("Transpose", [result], [node.output[0]], name=self._name(f"{name}/back"),
                                   perm=[0, rank - 1, *range(1, rank - 1)])

    def _match(self, node: NodeProto) -> tuple[str, tuple[str, bool, float, np.ndarray, np.ndarray]] | None:
        if node.op_type != "Div":
            return None
        source, axis = self._centred(node.input[0])
        root = self._made(node.input[1], "Sqrt")
        total = self._made(root.input[0], "Add") if root is not None else None
        if not source or total is None:
            return None
        variance, epsilon = self._with_constant(total)
        mean = self._made(variance, "ReduceMean")
        square = self._makers.get(mean.input[0]) if mean is not None and epsilon is not None else None
        if mean is None or square is None or epsilon is None or epsilon.size != 1 or self._axis(mean) != axis:
            return None
        if self._centred(square.input[0]) != (source, axis) or not self._is_square(square):
            return None
        channels = self._shapes[source][axis]
        numbers, result = [np.ones(channels, np.float32), np.zeros(channels, np.float32)], node.output[0]
        for place, op in enumerate(("Mul", "Add")):
            reader = next(iter(self._readers[result]), None) if len(self._readers[result]) == 1 else None
            _, constant = self._with_constant(reader) if reader is not None and reader.op_type == op else ("", None)
            column = (channels, *(1,) * (len(self._shapes[source]) - 1 - axis))
            if reader is None or constant is None or constant.shape not in (column, (1,) * axis + column):
                break
            numbers[place], result = constant.reshape(-1).astype(np.float32), reader.output[0]
        last = axis == len(self._shapes[source]) - 1
        return result, (source, last, float(epsilon.item()), numbers[0], numbers[1])

    def _centred(self, name: str) -> tuple[str, int]:
        """What a value is without its mean, and over which axis that is: the last, or that of the channels."""
        less = self._made(name, "Sub")
        mean = self._made(less.input[1], "ReduceMean") if less is not None else None
        if less is None or mean is None or mean.input[0] != less.input[0]:
            return "", 0
        axis, shape = self._axis(mean), self._shapes.get(less.input[0], [])
        return (less.input[0], axis) if axis and axis in (1, len(shape) - 1) and shape[axis] else ("", 0)

    def _axis(self, mean: NodeProto) -> int:
        """The one axis of a mean that keeps it; 0 for any other."""
        attributes = self._attributes(mean)
        axes = attributes.get("axes", [])
        if len(mean.input) > 1 and (numbers := self._number(mean.input[1])) is not None:
            axes = numbers.reshape(-1).tolist()
        rank = len(self._shapes.get(mean.input[0], []))
        return int(axes[0]) % rank if len(axes) == 1 and rank and attributes.get("keepdims", 1) else 0

    def _is_square(self, node: NodeProto) -> bool:
        if node.op_type == "Pow":
            power = self._number(node.input[1])
            return power is not None and bool((power == 2).all())
        return node.op_type == "Mul" and node.input[0] == node.input[1]

    def _with_constant(self, node: NodeProto) -> tuple[str, np.ndarray | None]:
        """The operands of a node of which one is a constant."""
        for one, other in (node.input, reversed(node.input)):
            if (number := self._number(other)) is not None:
                return one, number
        return "", None
