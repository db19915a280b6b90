"""Linear attention whose shares are divided by their sum, as EfficientViT has it, in what a machine has.

Queries q and keys k, (tokens, D) in each head, are not negative. The sums q (k^T v) are divided by the sums q (k^T 1)
and a guard against zero; a column of ones beside v makes the latter. Both are as large as q is at a token, so eight
bits would leave them few steps where q is small. The quotient is the same for q of any size. So q is first divided by
the sum of its channels; this need not be exact, as it divides both. The sums of k are averages over pixels. The divisor
is a convolution of each head's channels, which makes it once for every channel of the quotient. Where all of q is 0, so
is the quotient.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from gen.onnx.patterns import constant, first, op, value
from gen.quantize.rewriting import Rewriting

__all__ = ["LinearAttention"]

#: A guard against a divisor of zero is as small at most: what is left out adds no more than that to a sum.
_GUARD = 1e-5
#: That of a divisor that is about 1.
_OWN_GUARD = 1e-9
_QUOTIENT = op("Div", value("above"), op("Add", value("below"), constant(
    test=lambda array: array.size == 1 and 0 <= array.item() <= _GUARD)))


@dataclass(frozen=True)
class _Quotient:
    """``query`` and ``value`` are (1, heads, tokens, D), and ``key`` (1, heads, D, tokens); if ``turned``, all are the
    other way round.
    """

    query: str
    key: str
    value: str
    turned: bool


class LinearAttention(Rewriting):
    """Replaces the quotient of such attention, of tensors (1, heads, tokens, D) or, transposed, (1, heads, D, tokens),
    of known sizes.
    """

    OPERATORS = frozenset(("Div",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if (found := self._match(node)) is not None:
            yield from self._steps(node, found)

    # -- how it is written -------------------------------------------------------------------------------------------

    def _match(self, node: NodeProto) -> _Quotient | None:
        found = first(self._index, _QUOTIENT, node.output[0])
        if found is None:
            return None
        parts = [self._part(found[label]) for label in ("above", "below")]
        if None in parts:
            return None
        (source, axis, *above), (same, other, *below) = parts     # type: ignore[misc]
        product, shape = self._made(source, "MatMul"), self._shapes.get(source, [])
        if product is None or (source, axis) != (same, other) or len(shape) != 4 or axis < 2:
            return None
        if above != [0, shape[axis] - 1] or below != [shape[axis] - 1, shape[axis]]:
            return None
        turned = axis == 2
        query, sums = product.input[::-1] if turned else product.input
        inner = self._made(sums, "MatMul")
        if inner is None:
            return None
        key, padded = inner.input[::-1] if turned else inner.input
        value, sizes = self._beside_ones(padded, axis), self._shapes.get(key, [])
        if not value or not all(self._is_positive(name) for name in (query, key)):
            return None
        others = [self._shapes.get(name, []) for name in (query, value)]
        if any(len(other) != 4 or other[:2] != shape[:2] for other in (sizes, *others)):
            return None     # some are repeated for all heads or samples
        if not all((*sizes[1:], *others[0][1:], *others[1][1:])):
            return None
        return _Quotient(query, key, value, turned)

    def _part(self, name: str) -> tuple[str, int, int, int] | None:
        """What a Slice of one axis, or a Split, is of; the axis; and where it begins and ends."""
        maker = self._makers.get(name)
        shape = self._shapes.get(maker.input[0], []) if maker is not None else []
        if maker is None or not shape or not all(shape[1:]):
            return None
        if maker.op_type == "Split":
            sizes = self._number(maker.input[1]) if len(maker.input) > 1 else None
            if sizes is None:
                return None
            first = int(sizes[:list(maker.output).index(name)].sum())
            axis = self._attributes(maker).get("axis", 0) % len(shape)
            return maker.input[0], axis, first, first + self._shapes[name][axis]
        if maker.op_type != "Slice":
            return None
        numbers = [self._number(other) for other in maker.input[1:]]
        found = [int(number.item()) for number in numbers if number is not None and number.size == 1]
        if len(found) != len(numbers) or len(found) < 3 or found[3:] not in ([], [1]):
            return None
        first, last, axis = found[:3]
        return maker.input[0], axis % len(shape), *slice(first, last).indices(shape[axis])[:2]

    def _beside_ones(self, name: str, axis: int) -> str:
        """What has got one more place of an axis, which is 1 everywhere; "" for anything else."""
        maker = self._makers.get(name)
        if maker is None or len(self._shapes.get(name, [])) != 4:
            return ""
        if maker.op_type == "Concat" and len(maker.input) == 2 and self._attributes(maker)["axis"] % 4 == axis:
            ones = self._number(maker.input[1])
            return maker.input[0] if ones is not None and ones.shape[axis] == 1 and (ones == 1).all() else ""
        if maker.op_type != "Pad" or self._attributes(maker).get("mode", b"constant") != b"constant":
            return ""
        pads, filled = (self._number(other) for other in [*maker.input[1:], ""][:2])
        if pads is None or filled is None or len(maker.input) > 3 and maker.input[3]:
            return ""
        wanted = [0] * 8
        wanted[4 + axis] = 1
        return maker.input[0] if pads.tolist() == wanted and filled.item() == 1 else ""

    def _is_positive(self, name: str) -> bool:
        """Whether no value can be negative: of a Relu, in whatever order."""
        maker = self._makers.get(name)
        while maker is not None and maker.op_type in ("Transpose", "Reshape", "Slice", "Split"):
            maker = self._makers.get(maker.input[0])
        return maker is not None and maker.op_type == "Relu"

    # -- what it becomes ---------------------------------------------------------------------------------------------

    def _steps(self, owner: NodeProto, found: _Quotient) -> Iterator[NodeProto]:
        channels, row = (2, 3) if found.turned else (3, 2)
        heads, tokens, size = (self._shapes[found.query][axis] for axis in (1, row, channels))
        # The quotient has as many channels as v, and k as many tokens.
        width, keys = self._shapes[found.value][channels], self._shapes[found.value][row]

        def node(op: str, *inputs: str, result: str = "", **attributes: Any) -> NodeProto:
            name = result or self._name(f"{owner.name}/{op}")
            return helper.make_node(op, inputs, [name], name=self._name(f"{owner.name}/{op}_node"), **attributes)

        def shaped(source: str, *shape: int) -> NodeProto:
            return node("Reshape", source, self._constant(owner.name, np.array(shape)))

        def as_map(source: str, count: int, turn: bool) -> Iterator[NodeProto]:
            """The channels of all heads, of a row of ``count`` tokens. ``turn``: tokens are in front of them."""
            if turn:
                yield (turned := node("Transpose", source, perm=[0, 1, 3, 2]))
                source = turned.output[0]
            yield shaped(source, -1, heads * size, count, 1)

        def sums(source: str, outputs: int, factor: int) -> NodeProto:
            """Of each head's channels, for so many channels of the result."""
            weights = np.full((heads * outputs, size, 1, 1), factor, np.float32)
            return node("Conv", source, self._constant(owner.name, weights), group=heads)

        def inverse(source: str) -> Iterator[NodeProto]:
            yield (guarded := node("Add", source, self._constant(owner.name, _OWN_GUARD)))
            yield node("Reciprocal", guarded.output[0])

        def of_heads(source: str, count: int) -> Iterator[NodeProto]:
            yield (shape := shaped(source, -1, heads, count, tokens))
            if not found.turned:
                yield node("Transpose", shape.output[0], perm=[0, 1, 3, 2])

        yield from (query := list(as_map(found.query, tokens, not found.turned)))
        yield (total := sums(query[-1].output[0], size, 1))
        yield from (factor := list(inverse(total.output[0])))
        yield (shares := node("Mul", query[-1].output[0], factor[-1].output[0]))
        # Sums of v.
        operands = found.key, found.value
        yield (product := node("MatMul", *(operands[::-1] if found.turned else operands)))
        yield from (made := list(of_heads(shares.output[0], size)))
        operands = made[-1].output[0], product.output[0]
        yield (above := node("MatMul", *(operands[::-1] if found.turned else operands)))
        # Those of ones.
        yield from (made := list(as_map(found.key, keys, found.turned)))
        yield (mean := node("GlobalAveragePool", made[-1].output[0]))
        yield (weighed := node("Mul", shares.output[0], mean.output[0]))
        yield (below := sums(weighed.output[0], width, keys))
        yield from (made := list(inverse(below.output[0])))
        yield from (made := list(of_heads(made[-1].output[0], width)))
        yield node("Mul", above.output[0], made[-1].output[0], result=owner.output[0])
