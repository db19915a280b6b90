"""Products of two activations, head by head."""

from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.arrangement import HEAD_BLOCK, VALUE_BLOCK, moved
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.permuted import selected
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs
from gen.onnx.transposed import transposed
from gen.onnx.values import Head, Host, PendingProduct, Real, Value

__all__ = ["activations_product"]

def activations_product(context: Context, inputs: Inputs) -> Value:
    """``a @ b``: (..., M, R) times (..., R, N), for each of the leading axes' heads.

    The channels of a's tensor are R, its pixels M. The channels of b's tensor are R or N, its pixels the other one.

    The two may change places, as ``a @ b`` is the transpose of b's transpose times a's. This is done where nothing else
    is possible, and where pixels outnumber channels otherwise, as a Softmax takes channels as its rows.
    """
    if not (context.units.have("gather") or context.units.have("turn")):
        raise NodeError("multiplies two activations; --features turn or gather does that on the accelerator",
                        code="needs-unit", unit="gather")
    try:
        return _product(context, inputs)
    except NodeError as error:
        # Of windows, heads come after an axis of their own.
        shapes = [value.order.shape for value in inputs if isinstance(value, Real)]
        if error.code != "rearranged" or not any(len(shape) > 3 and shape[0] > 1 for shape in shapes):
            raise
        if context.units.have("turn"):
            raise
        raise _in_parts() from None


def _in_parts() -> NodeError:
    return NodeError("multiplies activations in parts of their pixels; --features turn does that on the accelerator",
                     code="needs-unit", unit="turn")


def _product(context: Context, inputs: Inputs) -> Value:
    a, b = (_real(context, value, heads_of) for value, heads_of in zip(inputs, (_FIRST, _SECOND), strict=True))
    if min(a.order.ndim, b.order.ndim) < 3 or a.order.shape[-1] != b.order.shape[-2]:
        raise NodeError(f"multiplies activations of shapes {a.order.shape} and {b.order.shape}; both must have leading "
                        "axes", code="operand-shapes")
    a, b = _of_all_heads(a, b)
    wide = b.order.shape[-1] > a.order.shape[-2] and context.node.name not in context.graph.scores
    turned = (wide or not _is_part(context, a, _matrices(a)[0].T)) and _is_part(context, b, _matrices(b)[0])
    if turned:
        a, b = (moved(value, (-1, -2), (-2, -1)) for value in (b, a))
    pixels, columns = a.order.shape[-2], b.order.shape[-1]
    groups = _heads(context, a)
    heads, parts = groups.shape
    if parts > 1 and not context.units.have("turn"):
        raise _in_parts()
    block = HEAD_BLOCK if context.node.name in context.graph.scores else VALUE_BLOCK
    outputs = columns if heads == 1 else -(-columns // block) * block
    try:
        found = [_head(context, a, b, numbers, outputs) for numbers in groups]
    except NodeError as error:
        if error.code != "rearranged" or parts == 1:
            raise
        # Heads whose queries are parts of the pixels, and whose keys are other channels, are taken one by one.
        groups = groups.reshape(-1, 1)
        heads, parts = groups.shape
        outputs = -(-columns // block) * block
        found = [_head(context, a, b, numbers, outputs) for numbers in groups]
    size = context.graph.tensors[found[0].arguments["input"]].shape[1:]
    order = np.empty((groups.size, pixels, columns), np.int64)
    order[groups] = ((np.arange(heads)[:, None, None, None] * outputs + np.arange(columns)) * (parts * pixels)
                     + np.arange(parts)[:, None, None] * pixels + np.arange(pixels)[:, None])
    order = order.reshape(*a.order.shape[:-1], columns)
    name = context.node.name
    order = order.swapaxes(-1, -2) if turned else order
    return PendingProduct(name=name, nodes=(name,), order=order, heads=tuple(found), outputs=outputs, size=size,
                          scale=a.scale * b.scale)


#: Of an operand whose layout is not decided yet: the axis of a head's matrix that is that of the channels.
_FIRST, _SECOND = 1, 0


def _real(context: Context, value: Value | None, channels: int) -> Real:
    """An operand as a tensor."""
    if isinstance(value, Host):
        why = refusal(value, "an operand")
        if value.maker:
            # As a node of the processor the Softmax of attention can have a layer after it.
            if not context.units.have("rows"):
                raise NodeError(f"is in front of a product, node {context.node.name}; --features rows computes it on "
                                "the accelerator", at=value.maker, code="needs-unit", unit="rows")
            raise NodeError(f"has no layer on the machine, and node {context.node.name} multiplies its result",
                            at=value.maker, code=why.code)
        raise why
    if not isinstance(value, Real):
        raise refusal(value, "an operand")
    if value.order.ndim >= 3:
        matrices = value.order.reshape(-1, *value.order.shape[-2:])
        heads, *size = matrices.shape
        shape = heads * size[channels], 1, size[1 - channels]
        laid = np.arange(prod(shape)).reshape(heads, size[channels], size[1 - channels])
        laid = laid if channels == 0 else laid.swapaxes(-1, -2)
        context.graph.place_like(value, laid.reshape(value.order.shape), shape)
        context.graph.place_channels_last(value)
    tensor = context.graph.tensor(value.quantised, value.scale, value.zero_point)
    return replace(value, quantised=tensor)


def _of_all_heads(a: Real, b: Real) -> tuple[Real, Real]:
    """With the same leading axes, where one's matrix may be that of several of the other's."""
    leading = np.broadcast_shapes(a.order.shape[:-2], b.order.shape[:-2])
    spread = [np.broadcast_to(value.order, (*leading, *value.order.shape[-2:])) for value in (a, b)]
    first, second = (replace(value, quantised=replace(value.quantised, order=order))
                     for value, order in zip((a, b), spread, strict=True))
    return first, second


def _matrices(value: Real) -> np.ndarray:
    """The arrangement of each head."""
    return value.order.reshape(-1, *value.order.shape[-2:])


def _heads(context: Context, value: Real) -> np.ndarray:
    """The numbers of a value's matrices, (heads, parts): those of a head have the same channels, and each a part of
    the pixels, in their order. What several of the other operand's matrices have in common is a head for each.
    """
    firsts = _matrices(value)[:, 0, 0]
    channel, pixel = np.divmod(firsts, prod(_size(context, value)))
    groups: dict[tuple[int, int], list[int]] = {}
    seen: Counter[int] = Counter()
    for number, (first, head) in enumerate(zip(firsts.tolist(), channel.tolist(), strict=True)):
        groups.setdefault((head, seen[first]), []).append(number)
        seen[first] += 1
    if len({len(numbers) for numbers in groups.values()}) > 1:
        raise _rearranged()
    return np.array([sorted(numbers, key=lambda number: int(pixel[number])) for numbers in groups.values()])


def _head(context: Context, a: Real, b: Real, numbers: np.ndarray, outputs: int) -> Head:
    """The product of matrices ``numbers``, each of which is a part."""
    first, second = (_matrices(value)[numbers] for value in (a, b))
    reduced, columns = second.shape[1:]
    # (channels, parts, pixels of a part) each.
    queries, keys = first.transpose(2, 0, 1), second.transpose(1, 0, 2)
    by_channels = not _lies(context, b, _joined(keys))
    if by_channels:
        keys = second.transpose(2, 0, 1)
    source = None
    if len(numbers) == 1 and not _lies(context, a, _joined(queries)) and _lies(context, a, first[0]):
        source = transposed(context, _matrix(context, a, first[0]))
    source = source or _matrix(context, a, _joined(queries))
    matrix = _matrix(context, b, _joined(keys))
    return Head(arguments=dict(
        input=source.quantised.tensor, matrix=matrix.quantised.tensor, reduced=reduced, rows=columns,
        zero_points=(a.zero_point, b.zero_point), by_channels=by_channels, parts=len(numbers)))


def _joined(parts: np.ndarray) -> np.ndarray:
    return parts.reshape(len(parts), -1)


def _size(context: Context, value: Real) -> tuple[int, ...]:
    return context.graph.tensors[value.quantised.tensor].shape[1:]


def _lies(context: Context, value: Real, matrix: np.ndarray) -> bool:
    """Whether the rows of a matrix are channels of a tensor, and its columns all of their pixels in order."""
    pixels = prod(_size(context, value))
    channel, pixel = np.divmod(matrix, pixels)
    return bool(matrix.shape[1] == pixels and (channel == channel[:, :1]).all() and (pixel == np.arange(pixels)).all())


def _is_part(context: Context, value: Real, matrix: np.ndarray) -> bool:
    """Whether the rows of a matrix are channels of a tensor, and its columns one of several parts of their pixels."""
    pixels, count = prod(_size(context, value)), matrix.shape[1]
    channel, pixel = np.divmod(matrix, pixels)
    return bool(pixels % count == pixel[0, 0] % count == 0 and (channel == channel[:, :1]).all()
                and (pixel == pixel[0, 0] + np.arange(count)).all())


def _matrix(context: Context, value: Real, matrix: np.ndarray) -> Real:
    """The tensor of a matrix (channels, pixels), perhaps part of another, of some of whose pixels a copy is made.
    Raises NodeError for values that lie in another way.
    """
    if not _lies(context, value, matrix):
        value = _copied(context, value, matrix)
        matrix = value.order.reshape(matrix.shape)
    order = matrix.reshape(1, len(matrix), *_size(context, value))
    return context.activation(replace(value, quantised=replace(value.quantised, order=order)))


def _copied(context: Context, value: Real, matrix: np.ndarray) -> Real:
    """The tensor of neighbours among the pixels of a value. Raises NodeError where a matrix is anything else."""
    if not _is_part(context, value, matrix):
        raise _rearranged()
    order = matrix.reshape(1, len(matrix), 1, -1)
    real = selected(context.graph, replace(value, quantised=replace(value.quantised, order=order)))
    if real is None or not _lies(context, real, real.order.reshape(matrix.shape)):
        raise _rearranged()
    return real


def _rearranged() -> NodeError:
    return NodeError("multiplies activations of which one is no channels of a tensor, in parts of its pixels that "
                     "follow each other; the machine moves whole pixels alone, so heads must be neighbouring channels",
                     code="rearranged")
