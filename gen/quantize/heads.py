"""Products with a constant matrix for each head, and factors of heads that are repeated.

A matrix for each head is one with columns for all of them where they read the same, and else one with zeros outside of
the heads' own places. A factor of keys that several heads of queries share is one of each of them before they are
repeated.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
from onnx import NodeProto, helper

from gen.onnx.weights import MAX_WEIGHTS
from gen.quantize.rewriting import Rewriting

__all__ = ["HeadMatrices", "SharedFactors"]

#: What repeats values, and what only arranges them.
_REPEATING, _ARRANGING = ("Expand", "Tile"), ("Reshape", "Transpose", "Unsqueeze", "Squeeze")


class HeadMatrices(Rewriting):
    """Replaces the matrices of heads, (H, C, M), by one matrix, after (B, H, N, C) or in front of its transpose; so,
    too, one matrix for all heads that is in front.
    """

    OPERATORS = frozenset(("MatMul",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        left, right = map(self._number, node.input[:2])
        if right is not None:
            if right.ndim in (3, 4) and right.shape[-3] > 1:
                yield from self._spread(node, node.input[0], right, node.output[0])
            return
        shape = self._shapes.get(node.input[1], [])
        if left is None or left.dtype != np.float32 or len(shape) not in (3, 4) or not 2 <= left.ndim <= len(shape):
            return
        # The transpose of a product is that of its operands in the other order.
        turned, made = (self._name(f"{node.name or node.output[0]}/{what}") for what in ("turned", "product"))
        matrix = left.swapaxes(-1, -2)
        if left.size == prod(left.shape[-2:]):
            one = self._constant(node.name, matrix.reshape(matrix.shape[-2:]))
            found = [self._node(node, "MatMul", turned, one, result=made)]
        else:
            found = list(self._spread(node, turned, matrix, made, shape))
        if found:
            yield _turned(node.input[1], turned, len(shape))
            yield from found
            yield _turned(made, node.output[0], len(shape))

    def _spread(self, node: NodeProto, source: str, weights: np.ndarray, result: str, turned: list[int] | None = None
                ) -> Iterator[NodeProto]:
        """``source`` (B, H or 1, N, C), or (H, N, C) of one sample, times (H, C, M); ``turned``: the shape of what that
        is the transpose of.
        """
        shape = [*turned[:-2], turned[-1], turned[-2]] if turned else self._shapes.get(source, [])
        heads, size, columns = weights.shape[-3:]
        # Of three axes the first one may be that of samples, too.
        samples = {self._shapes[value.name][0] for value in self._model.graph.input if self._shapes.get(value.name)}
        sizes = {3: {heads} - samples, 4: {1, heads}}.get(len(shape), set())
        whole = weights.size == heads * size * columns and weights.dtype == np.float32
        if not whole or weights.ndim > len(shape) or shape[-3] not in sizes:
            return
        apart = weights.reshape(heads, size, columns)
        if shape[-3] == 1:
            matrix = apart.transpose(1, 0, 2).reshape(size, -1)
        elif heads * weights.size > MAX_WEIGHTS:
            return
        else:
            places = np.zeros((heads, size, heads, columns), np.float32)
            places[np.arange(heads), :, np.arange(heads)] = apart
            matrix = places.reshape(heads * size, -1)
        name = node.name or node.output[0]
        beside, flat, product, split = (self._name(f"{name}/{what}") for what in ("beside", "flat", "all", "split"))
        perm, before, after = ([0, 2, 1, 3], [0, 0], [0, 0]) if len(shape) == 4 else ([1, 0, 2], [1, -1], [-1])
        numbers = [self._constant(name, np.array(dims)) for dims in (
            [*before, len(matrix)], [*after, heads, columns])]
        yield helper.make_node("Transpose", [source], [beside], name=beside, perm=perm)
        yield helper.make_node("Reshape", [beside, numbers[0]], [flat], name=flat)
        yield helper.make_node("MatMul", [flat, self._constant(name, np.ascontiguousarray(matrix))], [product],
                               name=product)
        yield helper.make_node("Reshape", [product, numbers[1]], [split], name=split)
        yield helper.make_node("Transpose", [split], [result], name=self._name(f"{name}/heads"), perm=perm)


def _turned(source: str, result: str, rank: int) -> NodeProto:
    """The last two axes in the other order."""
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return helper.make_node("Transpose", [source], [result], name=f"{result}/transpose", perm=perm)


class SharedFactors(Rewriting):
    """A factor of one number in front of what repeats heads, where nothing else reads these."""

    OPERATORS = frozenset(("Mul",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        constants = [name for name in node.input if self._number(name) is not None]
        factor = self._number(constants[0]) if len(constants) == 1 else None
        if factor is None or factor.size != 1:
            return
        source = next(name for name in node.input if name != constants[0])
        chain = list(self._arranging(source))
        while chain and chain[-1].op_type not in _REPEATING:
            chain.pop()
        if not chain or factor.ndim > max(len(self._shapes.get(source, [])), 1):
            return
        constant = self._constant(node.name, factor.reshape(()))
        yield (made := self._node(node, "Mul", chain[-1].input[0], constant))
        for number, before in reversed(list(enumerate(chain))):
            copied = NodeProto()
            copied.CopyFrom(before)
            copied.name = self._name(f"{before.name or before.output[0]}/scaled")
            copied.input[0] = made.output[0]
            copied.output[0] = copied.name if number else node.output[0]
            yield (made := copied)

    def _arranging(self, name: str) -> Iterator[NodeProto]:
        """What repeats and arranges values up to this one, which nothing but their shapes is read of; last first."""
        while (maker := self._makers.get(name)) is not None and maker.op_type in (*_REPEATING, *_ARRANGING) and (
                name not in self._outputs
                and sum(reader.op_type != "Shape" for reader in self._readers.get(name, [])) == 1):
            yield maker
            name = maker.input[0]
