"""LayerNormalization and RMSNormalization in models that have their steps instead, as exporters write them in opsets
without these operators.

The form is (x - mean) / sqrt(mean of squares + epsilon), with x in place of the difference for an RMSNormalization, and
a Mul and an Add of constants after it. It is over the last axis, or over the channels of a map; the latter are moved to
the last axis in front of it, and back after it. The squares are those of the difference, or those of x less the mean's.
Keras writes the end as x * factor + (bias - mean * factor). JAX divides sums by their number, without the axis, which
the results get back later, and repeats them to the shape of x.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, helper

from gen.onnx.index import GraphIndex
from gen.onnx.patterns import Found, Pattern, any_of, constant, op, value
from gen.quantize.opsets import converted, opset_of
from gen.quantize.rewriting import Rewriting, rewritten

__all__ = ["find_layer_norms"]

#: The first opset that has it.
_OPSET = 17
_X = value("x")
_ARRANGING = ("Reshape", "Unsqueeze", "Expand")


def _all(number: float) -> Pattern:
    """A constant of nothing but a number."""
    return constant(test=lambda array: bool((array == number).all()))


def _mean(of: Pattern, label: str) -> Pattern:
    return _arranged(op("ReduceMean", of, label=label))


def _arranged(number: Pattern) -> Pattern:
    """What each row has one of, perhaps with the axis of the row once more, and repeated along it."""
    kept = any_of(number, op("Reshape Unsqueeze", number))
    return any_of(kept, op("Expand", kept))


def _square(of: Pattern) -> Pattern:
    return any_of(op("Pow", of, _all(2)), op("Mul", of, of))


def _factor(variance: Pattern, label: str = "") -> Pattern:
    """One over the root of a variance, which is guarded; TensorFlow multiplies that with the scale first."""
    plain = _inverse_root(variance, label)
    scaled = op("Mul", _arranged(_inverse_root(variance)), constant("scale"), label=label)
    return any_of(_arranged(plain), scaled, op("Div", constant("scale"), _arranged(op("Sqrt", _guarded(variance))),
                                               label=label))


def _inverse_root(variance: Pattern, label: str = "") -> Pattern:
    under = _guarded(variance)
    return any_of(op("Pow", under, _all(-0.5), label=label), op("Div", _all(1), op("Sqrt", under), label=label),
                  op("Reciprocal", op("Sqrt", under), label=label))


def _guarded(variance: Pattern) -> Pattern:
    not_negative = _arranged(any_of(variance, op("Relu", variance), op("Max", variance, _all(0))))
    return op("Add", not_negative, constant("epsilon", lambda array: array.size == 1))


def _divided(above: Pattern, variance: Pattern) -> Pattern:
    return any_of(op("Div", above, _arranged(op("Sqrt", _guarded(variance)))), op("Mul", above, _factor(variance)))


_SQUARES = _mean(_square(_X), "squares")
_VARIANCE = any_of(_mean(_square(op("Sub", _X, _mean(_X, "mean"), label="less")), "squares"),
                   op("Sub", _SQUARES, _square(_mean(_X, "mean"))))
#: How it is written, and whether the mean is subtracted.
_FORMS = ((_divided(op("Sub", _X, _mean(_X, "other")), _VARIANCE), True), (_divided(_X, _SQUARES), False))
_SHIFT = op("Mul", value("factor"), _mean(_X, "other"))
_LESS = any_of(op("Mul", value("factor"), op("Neg", _mean(_X, "other"))), op("Neg", _SHIFT))
_JOINED = op("Add", op("Mul", _X, _factor(_VARIANCE, "factor"), alone=True),
             any_of(op("Sub", constant("bias"), _SHIFT), op("Add", _LESS, constant("bias")), _LESS))


def find_layer_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with LayerNormalization in the place of such steps, in an opset that has it; as it is without any."""
    if not any(node.op_type in ("Sqrt", "Pow") for node in model.graph.node) or not _Steps(GraphIndex(model)).found:
        return model
    if opset_of(model) < _OPSET:
        try:
            model = converted(model, _OPSET)
        except Exception:      # a converter in C++ raises anything; the steps stay
            return model
    return rewritten(model, _Steps)


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

    OPERATORS = frozenset(("Add", "Div", "Mul"))

    def __init__(self, index: GraphIndex) -> None:
        super().__init__(index)
        self.found = dict(filter(None, map(self._match, index.graph.node)))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.output[0] not in self.found:
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
        for pattern, centred in ((_JOINED, True),) if node.op_type == "Add" else _FORMS:
            for found in pattern(self._index, node.output[0], {}):
                axis = self._axis(found)
                if axis and self._is_arranged(node, found["x"], axis) and (
                        made := self._norm(node, found, axis, centred=centred)) is not None:
                    return made
        return None

    def _norm(self, node: NodeProto, found: Found, axis: int, *, centred: bool) -> tuple[str, _Norm] | None:
        """The result of the last step, and what that is of; None where constants are of another shape."""
        shape, result = self._shapes[found["x"]], node.output[0]
        column = (shape[axis], *(1,) * (len(shape) - 1 - axis))
        shapes = column, (1,) * axis + column
        numbers = {"Mul": np.ones(shape[axis], np.float32), "Add": np.zeros(shape[axis], np.float32)}
        given = {"Mul": found.get("scale", ""), "Add": found.get("bias", "")}
        if "bias" not in found:
            for op_type in ("Mul", "Add") if centred else ("Mul",):
                readers = self._readers[result]
                if given[op_type]:
                    continue
                name = next((name for name in readers[0].input if self._number(name) is not None), "") if len(
                    readers) == 1 and readers[0].op_type == op_type else ""
                number = self._number(name)
                if number is None or number.shape not in shapes:
                    break
                given[op_type], result = name, readers[0].output[0]
        for op_type, name in given.items():
            if (number := self._number(name)) is not None:
                if number.shape not in shapes:
                    return None
                numbers[op_type] = number.reshape(-1).astype(np.float32)
        epsilon = self._number(found["epsilon"])
        assert epsilon is not None
        return result, _Norm(found["x"], axis == len(shape) - 1, float(epsilon.item()),
                             tuple(numbers.values())[:1 + centred])

    def _is_arranged(self, node: NodeProto, source: str, axis: int) -> bool:
        """Whether each number between ``source`` and a result is that of the row that it meets: such values have the
        axis of the row, or are without it among themselves.
        """
        shape = self._shapes[source]
        without = shape[:axis] + shape[axis + 1:]
        forms = shape, [*shape[:axis], 1, *shape[axis + 1:]]
        seen, waiting = {source}, [node.output[0]]
        while waiting:
            name = waiting.pop()
            maker = self._makers.get(name)
            if name in seen or maker is None:
                continue
            seen.add(name)
            arranging = maker.op_type in _ARRANGING
            operands = [each for each in maker.input if self._number(each) is None][:1 if arranging else None]
            default = [] if arranging else shape
            known, ranks = self._shapes.get(name, default), {len(self._shapes.get(each, default)) for each in operands}
            # Where tokens are as many as channels, a constant of more axes or an Expand may put the axis in front.
            if (known not in forms and (arranging or known != without) or len(ranks) > 1
                    or maker.op_type == "Expand" and ranks != {len(shape)}):
                return False
            waiting += operands
        return True

    def _axis(self, found: Found) -> int:
        """The one axis that all means are over, the last or that of the channels; 0 for any other."""
        axes, rank = set(), len(shape := self._shapes.get(found["x"], []))
        for name in (found[label] for label in ("mean", "other", "squares") if label in found):
            attributes = self._attributes(mean := self._makers[name])
            numbers = attributes.get("axes", [])
            if len(mean.input) > 1 and (array := self._number(mean.input[1])) is not None:
                numbers = array.reshape(-1).tolist()
            axes.add(int(numbers[0]) % rank if len(numbers) == 1 and rank else 0)
        axis = axes.pop()
        return axis if not axes and axis in (1, rank - 1) and shape[axis] else 0
