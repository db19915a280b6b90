"""Operators of a float model that others make: sums, powers, averages and products, which are layers.

Sum and Mean of several tensors; Einsum of two as a MatMul; a product with a matrix that has more axes than it needs, or
with a vector; MeanVarianceNormalization as InstanceNormalization; a Softmax of what is less than its maximum as one of
that itself. And, in front of layers with weights alone, LpNormalization, also where it is written as its steps, as a
normalisation by the mean of squares; LpPool, GlobalLpPool, ReduceL1 and ReduceSumSquare; and LRN, whose sums of
neighbouring channels are a 1x1 convolution.
"""

from collections.abc import Callable, Iterator
from math import prod, sqrt

import numpy as np
from onnx import NodeProto, helper

from gen.onnx.index import GraphIndex, depended_on
from gen.onnx.patterns import Pattern, any_of, constant, first, op, value
from gen.onnx.weights import MAX_WEIGHTS
from gen.quantize.rewriting import WEIGHTED, Rewriting

__all__ = ["Operators"]

#: What is added to a variance that has nothing else beside it.
_LEAST = 1e-9
#: The least length that something is divided by, at most: shorter ones are divided by their own.
_TINY = 1e-5


def _keeps_axes(index: GraphIndex, node: NodeProto) -> bool:
    return bool(index.attributes(node).get("keepdims", 1))


def _repeated(pattern: Pattern) -> Pattern:
    return any_of(pattern, op("Expand", pattern))


_NORMALISED = op("Div", value("x"), _repeated(op(
    "Clip Max", op("ReduceL2", value("x"), label="length", test=_keeps_axes),
    constant(test=lambda array: 0 <= array.max(initial=0) <= _TINY), test=lambda index, node: len(node.input) == 2)))
_LARGEST = _repeated(op("ReduceMax", value("x"), label="largest", test=_keeps_axes))


class Operators(Rewriting):
    """Replaces such operators in the forms for which the result is known to be the same."""

    OPERATORS = frozenset(("Sum", "Mean", "Einsum", "MatMul", "Softmax", "Div", "LRN", "LpNormalization",
                           "MeanVarianceNormalization", "LpPool", "GlobalLpPool", "ReduceL1", "ReduceSumSquare"))

    def __init__(self, index: GraphIndex) -> None:
        super().__init__(index)
        self._wanted = depended_on(index.model, WEIGHTED)

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        spread, everywhere = _OPERATORS[node.op_type]
        if node.domain in ("", "ai.onnx") and (everywhere or node.output[0] in self._wanted):
            yield from spread(self, node)

    # -- of several tensors ------------------------------------------------------------------------------------------

    def total(self, node: NodeProto) -> Iterator[NodeProto]:
        """Sum, Mean."""
        if node.op_type == "Sum" and len(node.input) == 1:
            return
        names = list(node.input)
        mean = node.op_type == "Mean"
        for place, name in enumerate(names[1:], 1):
            last = place == len(names) - 1 and not mean
            yield (made := self._node(node, "Add", names[0], name, result=node.output[0] if last else ""))
            names[0] = made.output[0]
        if mean:
            factor = self._constant(node.name, 1 / len(node.input))
            yield self._node(node, "Mul", names[0], factor, result=node.output[0])

    def einsum(self, node: NodeProto) -> Iterator[NodeProto]:
        equation = self._attributes(node)["equation"].decode().replace(" ", "")
        given, arrow, result = equation.partition("->")
        terms = given.split(",")
        if not arrow or len(terms) != 2 or "." in equation or any(
                len(set(term)) != len(term) for term in (*terms, result)):
            return
        operands = list(zip(terms, node.input, strict=True))
        if self._number(node.input[0]) is not None:
            operands.reverse()      # weights come second
        (left, first), (right, second) = operands
        shapes = {left: self._shape(first), right: self._shape(second)}
        if any(len(shape) != len(term) for term, shape in shapes.items()):
            return
        sizes = {label: size for term, shape in shapes.items() for label, size in zip(term, shape, strict=True)}
        inner = [label for label in left if label in right and label not in result]
        both = [label for label in left if label in right and label in result]
        rows, columns = ([label for label in term if label not in other] for term, other in (
            (left, right), (right, left)))
        order = [*both, *rows, *columns]
        if not inner or not rows or not columns or sorted(order) != sorted(result):
            return
        # Without axes of both, a matrix has any number of axes of rows; otherwise they are one.
        ones = [[label] for label in both]
        groups = {left: [*ones, *([rows] if both else [[label] for label in rows]), inner],
                  right: [*ones, inner, columns]}
        if sum(not sizes[label] for label in {*left, *right}) > 1:
            return
        found = []
        for term, name in ((left, first), (right, second)):
            yield from (made := list(self._arranged(node, name, term, groups[term], sizes)))
            found.append(made[-1].output[0] if made else name)
        split, turned = len(columns) > 1 or bool(both) and len(rows) > 1, order != list(result)
        yield (made := self._node(node, "MatMul", *found, result="" if split or turned else node.output[0]))
        if split:
            numbers = self._constant(node.name, np.array([sizes[label] or -1 for label in order]))
            yield (made := self._node(node, "Reshape", made.output[0], numbers,
                                      result="" if turned else node.output[0]))
        if turned:
            yield self._node(node, "Transpose", made.output[0], result=node.output[0],
                             perm=[order.index(label) for label in result])

    def _arranged(self, node: NodeProto, name: str, term: str, groups: list[list[str]], sizes: dict[str, int]
                  ) -> Iterator[NodeProto]:
        """An operand of an Einsum with its axes in groups, each of which is one."""
        wanted = [label for group in groups for label in group]
        if wanted != list(term):
            yield (made := self._node(node, "Transpose", name, perm=[term.index(label) for label in wanted]))
            name = made.output[0]
        if any(len(group) > 1 for group in groups):
            numbers = np.array([prod(sizes[label] for label in group) or -1 for group in groups])
            yield self._node(node, "Reshape", name, self._constant(node.name, numbers))

    # -- of neighbours -----------------------------------------------------------------------------------------------

    def response(self, node: NodeProto) -> Iterator[NodeProto]:
        """LRN: x / (bias + alpha / size * sum of squares)^beta."""
        attributes, shape = self._attributes(node), self._shape(node.input[0])
        if len(shape) not in (3, 4) or not shape[1] or shape[1]**2 > MAX_WEIGHTS:
            return
        size, channels = int(attributes["size"]), shape[1]
        after = np.arange(channels) - np.arange(channels)[:, None]
        near = (-((size - 1) // 2) <= after) & (after <= size // 2)
        weights = near * attributes.get("alpha", 1e-4) / size
        bias = np.full(channels, attributes.get("bias", 1.0), np.float32)
        yield (square := self._node(node, "Mul", node.input[0], node.input[0]))
        constants = [self._constant(node.name, array.astype(np.float32)) for array in (
            weights.reshape(channels, channels, *(1,) * (len(shape) - 2)), bias)]
        yield (total := self._node(node, "Conv", square.output[0], *constants))
        yield (factor := self._node(node, "Pow", total.output[0],
                                    self._constant(node.name, -attributes.get("beta", 0.75))))
        yield self._node(node, "Mul", node.input[0], factor.output[0], result=node.output[0])

    def unit(self, node: NodeProto) -> Iterator[NodeProto]:
        """LpNormalization of the channels, by their length."""
        attributes = self._attributes(node)
        if attributes.get("p", 2) == 2:
            yield from self._unit(node, attributes.get("axis", -1))

    def _unit(self, node: NodeProto, axis: int) -> Iterator[NodeProto]:
        """A node's first input by its length along an axis, which is that of the channels."""
        shape = self._shape(node.input[0])
        rank = len(shape)
        axis = axis % rank if rank else 0
        if axis not in (1, rank - 1) or not axis or not shape[axis]:
            return
        perm = [number for number in range(rank) if number != axis] + [axis]
        source, last = node.input[0], axis == rank - 1
        if not last:
            yield (forth := self._node(node, "Transpose", source, perm=perm))
            source = forth.output[0]
        scale = self._constant(node.name, np.full(shape[axis], 1 / sqrt(shape[axis]), np.float32))
        yield (made := self._node(node, "SimplifiedLayerNormalization", source, scale, axis=-1, epsilon=_LEAST**2,
                                  result=node.output[0] if last else ""))
        if not last:
            yield self._node(node, "Transpose", made.output[0], perm=np.argsort(perm).tolist(), result=node.output[0])

    def quotient(self, node: NodeProto) -> Iterator[NodeProto]:
        """Div of something by its length, as PyTorch writes `normalize`."""
        found = first(self._index, _NORMALISED, node.output[0])
        if found is None:
            return
        axes = self._axes(self._makers[found["length"]])
        # The last one of four may be that of the pixels, or of a head.
        shape = self._shape(node.input[0])
        rank = len(shape)
        if self._is_repeated(node.input[0], node.output[0]):
            return
        if axes is not None and axes.size == 1 and (rank < 4 or axes.item() in (1, 1 - rank)):
            yield from self._unit(node, int(axes.item()))

    def product(self, node: NodeProto) -> Iterator[NodeProto]:
        """MatMul with constants of one matrix, or of a vector, which is a matrix of one column."""
        weights = self._number(node.input[1])
        rank = len(self._shape(node.input[0]))
        if weights is not None and 2 < weights.ndim <= rank and set(weights.shape[:-2]) == {1}:
            matrix = self._constant(node.name, weights.reshape(weights.shape[-2:]))
            yield helper.make_node("MatMul", [node.input[0], matrix], node.output, name=node.name)
        elif weights is not None and weights.ndim == 1:
            yield (made := self._node(node, "MatMul", node.input[0], self._constant(node.name, weights[:, None])))
            yield self._node(node, "Squeeze", made.output[0], self._constant(node.name, np.array([-1])),
                             result=node.output[0])

    def shares(self, node: NodeProto) -> Iterator[NodeProto]:
        """Softmax of x - m, or m - x, where m is the same along its axis: DANet's, or for large numbers."""
        less, shape = self._made(node.input[0], "Sub"), self._shape(node.input[0])
        axis = self._attributes(node).get("axis", -1)
        if less is None or not shape or max(o.version for o in self._model.opset_import if not o.domain) < 13:
            return
        alike = [self._is_alike(name, axis % len(shape), len(shape)) for name in less.input]
        if self._is_repeated(less.input[alike[0]], node.input[0]):
            return
        if alike == [False, True]:
            yield self._node(node, "Softmax", less.input[0], axis=axis, result=node.output[0])
        if alike == [True, False]:
            yield (turned := self._node(node, "Neg", less.input[1]))
            yield self._node(node, "Softmax", turned.output[0], axis=axis, result=node.output[0])

    def _is_repeated(self, name: str, result: str) -> bool:
        """Whether a result is known to be larger than an operand, as what that meets is."""
        shape, whole = self._shape(name), self._shape(result)
        return bool(whole) and (len(shape) != len(whole) or any(
            one != other for one, other in zip(shape, whole, strict=True) if other))

    def _is_alike(self, name: str, axis: int, rank: int) -> bool:
        """Whether a value is the maximum along an axis of ``rank``, perhaps repeated."""
        found = first(self._index, _LARGEST, name)
        if found is None or len(self._shape(found["x"])) != rank:
            return False
        axes = self._axes(self._makers[found["largest"]])
        return axes is not None and [int(number) % rank for number in axes.reshape(-1)] == [axis]

    def _axes(self, node: NodeProto) -> np.ndarray | None:
        """What a node reduces along, as it is written; None where that is computed."""
        return self._number(node.input[1]) if len(node.input) > 1 else np.array(
            self._attributes(node).get("axes", []))

    def variance(self, node: NodeProto) -> Iterator[NodeProto]:
        """MeanVarianceNormalization of the pixels of a channel."""
        shape = self._shape(node.input[0])
        axes = sorted({axis % max(len(shape), 1) for axis in self._attributes(node).get("axes", [0, 2, 3])} - {0})
        if len(shape) not in (3, 4) or shape[0] != 1 or axes != list(range(2, len(shape))) or not shape[1]:
            return
        constants = [self._constant(node.name, np.full(shape[1], number, np.float32)) for number in (1, 0)]
        yield self._node(node, "InstanceNormalization", node.input[0], *constants, epsilon=_LEAST,
                         result=node.output[0])

    def power_pool(self, node: NodeProto) -> Iterator[NodeProto]:
        """LpPool and GlobalLpPool: roots of sums of squares, or sums of absolute values."""
        attributes, shape = self._attributes(node), self._shape(node.input[0])
        power = attributes.pop("p", 2)
        kernel = attributes.get("kernel_shape", shape[2:])
        if power not in (1, 2) or not kernel or not all(kernel) or attributes.pop("ceil_mode", 0):
            return      # averages do not count what windows have beyond the padding
        if set(attributes.pop("dilations", [1])) != {1}:
            return
        square = power == 2
        yield (sizes := self._node(node, *(("Mul", *node.input, *node.input) if square else ("Abs", *node.input))))
        if node.op_type == "GlobalLpPool":
            yield (mean := self._node(node, "GlobalAveragePool", sizes.output[0]))
        else:
            yield (mean := self._node(node, "AveragePool", sizes.output[0], count_include_pad=1, **attributes))
        yield from self._root(node, mean.output[0], float(prod(kernel)), square=square)

    def squares(self, node: NodeProto) -> Iterator[NodeProto]:
        """ReduceSumSquare, and ReduceL1 of absolute values."""
        kept = {name: value for name, value in self._attributes(node).items() if name in ("axes", "keepdims")}
        axes = self._axes(node)
        shape, number = self._shape(node.input[0]), self._number(node.input[0])
        if node.input[0] in self._integers or number is not None and number.dtype != np.float32:
            return
        if axes is None or not axes.size or not shape or not all(shape[axis] for axis in axes.tolist()):
            return
        operands = ("Abs", node.input[0]) if node.op_type == "ReduceL1" else ("Mul", node.input[0], node.input[0])
        yield (square := self._node(node, *operands))
        yield (mean := self._node(node, "ReduceMean", square.output[0], *node.input[1:], **kept))
        yield from self._root(node, mean.output[0], float(prod(shape[axis] for axis in axes.tolist())), square=False)

    def _root(self, node: NodeProto, mean: str, count: float, *, square: bool) -> Iterator[NodeProto]:
        """Of the sum of which that is the mean; or the sum itself."""
        if square:
            yield (root := self._node(node, "Sqrt", mean))
            mean = root.output[0]
        factor = self._constant(node.name, sqrt(count) if square else count)
        yield self._node(node, "Mul", mean, factor, result=node.output[0])

    def _shape(self, name: str) -> list[int]:
        """Also of a constant."""
        number = self._number(name)
        return self._shapes.get(name, []) if number is None else list(number.shape)


#: Operator -> what makes it, and whether also where no layer with weights follows.
_OPERATORS: dict[str, tuple[Callable[[Operators, NodeProto], Iterator[NodeProto]], bool]] = {
    "Sum": (Operators.total, True), "Mean": (Operators.total, True), "Einsum": (Operators.einsum, True),
    "MatMul": (Operators.product, True), "Softmax": (Operators.shares, True), "Div": (Operators.quotient, False),
    "LRN": (Operators.response, False), "LpNormalization": (Operators.unit, False),
    "MeanVarianceNormalization": (Operators.variance, False), "LpPool": (Operators.power_pool, False),
    "GlobalLpPool": (Operators.power_pool, False), "ReduceL1": (Operators.squares, False),
    "ReduceSumSquare": (Operators.squares, False)}
