"""LayerNormalization, and RMSNormalization, that are written as their steps, as exporters write them in opsets that
lack them.

(x - mean) / sqrt(mean of squares + epsilon), or x in place of the difference, with a Mul and an Add of constants behind
it, over the last axis or over the channels of a map, which are brought last in front of it and back behind it. The
squares are those of the difference, or of x, less the mean's; and Keras has x * factor + (bias - mean * factor).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, helper

from gen.quantize.opsets import converted, opset_of
from gen.quantize.rewriting import Rewriting

__all__ = ["find_layer_norms"]

#: The first opset that has it.
_OPSET = 17


def find_layer_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with LayerNormalization in the place of such steps, in an opset that has it; as it is without any."""
    if not any(node.op_type in ("Sqrt", "Pow") for node in model.graph.node) or not _Steps(model).found:
        return model
    if opset_of(model) < _OPSET:
        try:
            model = converted(model, _OPSET)
        except Exception:      # a converter in C++ raises anything; the steps stay
            return model
    return _Steps(model).run()


@dataclass(frozen=True)
class _Norm:
    """Of ``source``, over its ``last`` axis or that of the channels; ``parameters``: scale, and bias where the mean is
    subtracted, float32 (channels,).
    """

    source: str
    last: bool
    epsilon: float
    parameters: tuple[np.ndarray, ...]


class _Steps(Rewriting):
    """``found``: result of the last step -> what it is."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self.found = dict(filter(None, map(self._match, model.graph.node)))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.output[0] not in self.found:
            yield node
            return
        norm = self.found[node.output[0]]
        source, last = norm.source, norm.last
        name, rank = node.name, len(self._shapes[source])
        result = node.output[0]
        if not last:
            forth = self._name(f"{name}/last")
            yield helper.make_node("Transpose", [source], [forth], name=forth, perm=[0, *range(2, rank), 1])
            source, result = forth, self._name(f"{name}/norm")
        constants = [self._constant(name, numbers) for numbers in norm.parameters]
        yield helper.make_node("LayerNormalization" if len(constants) > 1 else "SimplifiedLayerNormalization",
                               [source, *constants], [result], name=self._name(f"{name}/layer"), axis=-1,
                               epsilon=norm.epsilon)
        if not last:
            yield helper.make_node("Transpose", [result], [node.output[0]], name=self._name(f"{name}/back"),
                                   perm=[0, rank - 1, *range(1, rank - 1)])

    def _match(self, node: NodeProto) -> tuple[str, _Norm] | None:
        parts = self._divided(node)
        total = self._made(parts[1], "Add") if parts is not None else None
        if parts is None or total is None:
            return None
        variance, epsilon = self._with_constant(total)
        found = self._variance(variance)
        if found is None or epsilon is None or epsilon.size != 1:
            return None
        source, axis, centred = found
        joined = None
        if centred and self._centred(parts[0]) != (source, axis):
            joined = self._joined(node, source, axis)
            if joined is None:
                return None
        if not centred and parts[0] != source:
            return None
        channels = self._shapes[source][axis]
        column = (channels, *(1,) * (len(self._shapes[source]) - 1 - axis))
        shapes = column, (1,) * axis + column
        numbers, result = [np.ones(channels, np.float32), np.zeros(channels, np.float32)], node.output[0]
        scaled = parts[2] is not None
        if parts[2] is not None:
            if parts[2].shape not in shapes:
                return None
            numbers[0] = parts[2].reshape(-1).astype(np.float32)
        if joined is not None:
            result, bias = joined
            if bias.shape not in shapes:
                return None
            numbers[1] = bias.reshape(-1).astype(np.float32)
            return result, _Norm(source, axis == len(self._shapes[source]) - 1, float(epsilon.item()), tuple(numbers))
        for place, op in list(enumerate(("Mul", "Add") if centred else ("Mul",)))[scaled:]:
            reader = next(iter(self._readers[result]), None) if len(self._readers[result]) == 1 else None
            _, constant = self._with_constant(reader) if reader is not None and reader.op_type == op else ("", None)
            if reader is None or constant is None or constant.shape not in shapes:
                break
            numbers[place], result = constant.reshape(-1).astype(np.float32), reader.output[0]
        last = axis == len(self._shapes[source]) - 1
        return result, _Norm(source, last, float(epsilon.item()), tuple(numbers) if centred else (numbers[0],))

    def _variance(self, name: str) -> tuple[str, int, bool] | None:
        """Of what a value is the variance, over which axis; or, with False, the mean of squares."""
        maker = self._makers.get(name)
        if maker is not None and maker.op_type in ("Relu", "Max"):     # no less than zero
            name, lowest = maker.input[0], np.zeros(1) if maker.op_type == "Relu" else None
            if len(maker.input) == 2:
                name, lowest = self._with_constant(maker)
            if lowest is None or lowest.any():
                return None
            maker = self._makers.get(name)
        less = self._makers.get(name) if maker is not None and maker.op_type == "Sub" else None
        mean = self._made(less.input[0] if less is not None else name, "ReduceMean")
        square = self._makers.get(mean.input[0]) if mean is not None else None
        if mean is None or square is None or not self._is_square(square):
            return None
        source, axis = self._centred(square.input[0])
        if less is None and source:
            return (source, axis, True) if self._axis(mean) == axis else None
        source, axis = square.input[0], self._along(square.input[0], mean)
        if not axis:
            return None
        if less is None:
            return source, axis, False
        other = self._makers.get(less.input[1])
        if other is None or not self._is_square(other) or self._mean_of(other.input[0]) != (source, axis):
            return None
        return source, axis, True

    def _mean_of(self, name: str) -> tuple[str, int]:
        mean = self._made(name, "ReduceMean")
        axis = self._along(mean.input[0], mean) if mean is not None else 0
        return (mean.input[0], axis) if mean is not None and axis else ("", 0)

    def _joined(self, node: NodeProto, source: str, axis: int) -> tuple[str, np.ndarray] | None:
        """Of ``source`` times a factor, to which a bias less the mean times the same factor is added: that sum, and the
        bias.
        """
        readers = self._readers[node.output[0]]
        if node.op_type != "Mul" or source not in node.input or [reader.op_type for reader in readers] != ["Add"]:
            return None
        factor = node.input[1 - list(node.input).index(source)]
        for name in readers[0].input:
            less = self._made(name, "Sub")
            bias = self._number(less.input[0]) if less is not None else None
            share = self._made(less.input[1], "Mul") if less is not None else None
            if bias is None or share is None or factor not in share.input:
                continue
            mean = share.input[1 - list(share.input).index(factor)]
            if self._mean_of(mean) == (source, axis):
                return readers[0].output[0], bias
        return None

    def _divided(self, node: NodeProto) -> tuple[str, str, np.ndarray | None] | None:
        """Of a / sqrt(b), in whichever way that is written: a, b, and the constant that the latter is multiplied with
        first, as TensorFlow does.
        """
        if node.op_type == "Div":
            root = self._made(node.input[1], "Sqrt")
            return (node.input[0], root.input[0], None) if root is not None else None
        for one, other in (node.input, node.input[::-1]) if node.op_type == "Mul" else ():
            if under := self._under_root(other):
                return one, under, None
            scaled = self._made(other, "Mul")
            name, scale = self._with_constant(scaled) if scaled is not None else ("", None)
            if scale is not None and (under := self._under_root(name)):
                return one, under, scale
        return None

    def _under_root(self, name: str) -> str:
        """What a value is one over the square root of; "" for any other."""
        maker = self._makers.get(name)
        if maker is None:
            return ""
        if maker.op_type == "Pow":
            power = self._number(maker.input[1])
            return maker.input[0] if power is not None and (power == -0.5).all() else ""
        if maker.op_type == "Div":
            one = self._number(maker.input[0])
            divisor = maker.input[1] if one is not None and (one == 1).all() else ""
        else:
            divisor = maker.input[0] if maker.op_type == "Reciprocal" else ""
        root = self._made(divisor, "Sqrt")
        return root.input[0] if root is not None else ""

    def _along(self, name: str, mean: NodeProto) -> int:
        """The axis of a mean over what is as large as a value, the last or that of the channels; 0 for another."""
        axis, shape = self._axis(mean), self._shapes.get(name, [])
        return axis if axis in (1, len(shape) - 1) and shape[axis] else 0

    def _centred(self, name: str) -> tuple[str, int]:
        """What a value is without its mean, and over which axis that is: the last, or that of the channels."""
        less = self._made(name, "Sub")
        mean = self._made(less.input[1], "ReduceMean") if less is not None else None
        if less is None or mean is None or mean.input[0] != less.input[0]:
            return "", 0
        axis = self._along(less.input[0], mean)
        return (less.input[0], axis) if axis else ("", 0)

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
