"""Operators that only move elements: in other shapes and orders, cut, joined or padded."""

from collections.abc import Sequence

import numpy as np

from gen.c.context import Context
from gen.c.copies import copy, fill, moved, pick
from gen.c.each import each
from gen.c.registry import operator
from gen.c.value import Dim, Size, Value, product, strides_of
from gen.c.walk import broadcast
from gen.onnx.model import Node, NodeError

__all__: list[str] = []


def axis_of(node: Node, rank: int, default: int = 0, word: str = "axis") -> int:
    return int(node.attributes.get(word, default)) % max(rank, 1)


def axes_of(node: Node, c: Context, rank: int, index: int = 1) -> list[int] | None:
    """An attribute in older operator sets, an input in newer ones; None where it is left out."""
    given = node.attributes.get("axes")
    if given is None:
        array = c.constant(index)
        given = None if array is None else array.ravel().tolist()
    return None if given is None else sorted(int(axis) % max(rank, 1) for axis in given)


@operator("Identity", "Dropout")
def same(node: Node, c: Context) -> None:
    value = c.input(0)
    c.result(value)
    if c.wants(1):
        raise c.refusal("with a mask")


@operator("Reshape")
def reshape(node: Node, c: Context) -> None:
    value = c.input(0)
    wanted = node.attributes.get("shape") if c.opset < 5 else c.constant(1)
    assert wanted is not None
    dims: list[Dim] = []
    for axis, size in enumerate(np.asarray(wanted).ravel().tolist()):
        dims.append(value.shape[axis] if size == 0 and not node.attributes.get("allowzero", 0) else int(size))
    if -1 in dims:
        at = dims.index(-1)
        dims[at] = _quotient(c, value.shape, [*dims[:at], *dims[at + 1:]])
    c.result(c.alias(value, dims))


def _quotient(c: Context, whole: Sequence[Dim], parts: Sequence[Dim]) -> Dim:
    """What remains of a shape beside sizes that are known."""
    left = [dim for dim in whole if isinstance(dim, Size)]
    for part in (dim for dim in parts if isinstance(dim, Size)):
        if part not in left:
            raise c.refusal("to a size that depends on the data")
        left.remove(part)
    known = int(np.prod([dim for dim in whole if isinstance(dim, int)]))
    divisor = int(np.prod([dim for dim in parts if isinstance(dim, int)]))
    if divisor and known % divisor == 0:
        return product([known // divisor, *left])
    total = product([known, *left])
    if isinstance(total, int):
        return total // max(divisor, 1)
    return Size(f"({total.text} / {divisor}u)", total.maximum // max(divisor, 1))


@operator("Flatten")
def flatten(node: Node, c: Context) -> None:
    value = c.input(0)
    axis = int(node.attributes.get("axis", 1))
    axis += value.rank if axis < 0 else 0
    c.result(c.alias(value, (product(value.shape[:axis]), product(value.shape[axis:]))))


@operator("Squeeze")
def squeeze(node: Node, c: Context) -> None:
    value = c.input(0)
    axes = axes_of(node, c, value.rank)
    if axes is None:
        axes = [axis for axis, dim in enumerate(value.shape) if dim == 1]
    c.result(c.alias(value, [dim for axis, dim in enumerate(value.shape) if axis not in axes]))


@operator("Unsqueeze")
def unsqueeze(node: Node, c: Context) -> None:
    value = c.input(0)
    given = node.attributes.get("axes", None)
    count = len(given) if given is not None else len(np.ravel(c.constant(1)))   # type: ignore[arg-type]
    axes = axes_of(node, c, value.rank + count) or []
    shape = list(value.shape)
    for axis in axes:
        shape.insert(axis, 1)
    c.result(c.alias(value, shape))


@operator("Transpose")
def transpose(node: Node, c: Context) -> None:
    value = c.input(0)
    order = node.attributes.get("perm", list(range(value.rank))[::-1])
    steps = strides_of(value.shape)
    c.result(moved(c, value, [value.shape[axis] for axis in order], [steps[axis] for axis in order]))


@operator("Slice")
def cut(node: Node, c: Context) -> None:
    value = c.input(0)
    if c.opset < 10:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, jumps = node.attributes.get("axes"), None
    else:
        starts, ends, axes, jumps = (None if (array := c.constant(index)) is None else array.ravel().tolist()
                                     for index in (1, 2, 3, 4))
    axes = list(range(len(starts))) if axes is None else axes
    jumps = [1] * len(axes) if jumps is None else jumps
    shape, steps = list(value.shape), strides_of(value.shape)
    own, start = list(steps), 0
    for first, last, axis, jump in zip(starts, ends, axes, jumps, strict=True):
        size = value.shape[axis]
        if isinstance(size, Size):
            if first == 0 and last >= size.maximum and jump == 1:
                continue
            if jump != 1 or last < 0 or first != 0:
                raise c.refusal("along a size that depends on the data, but for its beginning")
            shape[axis] = Size(f"({size.text} < {last}u ? {size.text} : {last}u)", min(last, size.maximum))
            continue
        chosen = range(*slice(int(first), int(last), int(jump)).indices(size))
        if jump < 0 and last < -size:   # up to the very first
            chosen = range(min(first + size if first < 0 else first, size - 1), -1, jump)
        step = steps[axis]
        shape[axis] = len(chosen)
        if not len(chosen):
            continue
        if not isinstance(step, int):
            if chosen.start or jump != 1:
                raise c.refusal("before a size that depends on the data")
            continue
        start += chosen.start * step
        own[axis] = jump * step
    c.result(moved(c, value, shape, own, start=start))


@operator("Split")
def split(node: Node, c: Context) -> None:
    value = c.input(0)
    axis = axis_of(node, value.rank)
    size = c.known(value)[axis]
    given = node.attributes.get("split")
    if given is None and (array := c.constant(1)) is not None:
        given = array.tolist()
    if given is None:
        number = int(node.attributes.get("num_outputs", len(node.outputs)))
        each_size = -(-size // number)
        given = [min(each_size, size - each_size * n) for n in range(number)]
    steps, at = strides_of(value.shape), 0
    for index, length in enumerate(given):
        shape = (*value.shape[:axis], int(length), *value.shape[axis + 1:])
        if c.wants(index):
            step = steps[axis]
            assert isinstance(step, int)
            c.result(moved(c, value, shape, steps, start=at * step), index)
        at += int(length)


def joined(c: Context, values: Sequence[Value], axis: int) -> Value:
    size: Dim = sum_of_sizes([value.shape[axis] for value in values])
    first = values[0]
    shape = (*first.shape[:axis], size, *first.shape[axis + 1:])
    for value in values:
        if (*value.shape[:axis], *value.shape[axis + 1:]) != (*shape[:axis], *shape[axis + 1:]):
            raise NodeError(f"its inputs of shapes {[one.shape for one in values]} cannot be joined",
                            code="operand-shapes")
    result = c.new(first.dtype, shape)
    steps = strides_of(shape)
    before: list[Dim] = []
    for value in values:
        to = product([sum_of_sizes(before), steps[axis]]) if before else 0
        copy(c, value, result, value.shape, strides_of(value.shape), steps, to=to)
        before.append(value.shape[axis])
    return result


def sum_of_sizes(dims: Sequence[Dim]) -> Dim:
    known = sum(dim for dim in dims if isinstance(dim, int))
    others = [dim for dim in dims if isinstance(dim, Size)]
    if not others:
        return known
    if len(others) == 1 and not known:
        return others[0]
    texts = [dim.text for dim in others] + ([f"{known}u"] if known else [])
    return Size(f"({' + '.join(texts)})", known + sum(dim.maximum for dim in others))


@operator("Concat")
def concat(node: Node, c: Context) -> None:
    values = [c.input(index) for index in range(len(node.inputs))]
    if len(values) == 1:
        c.result(values[0])
        return
    c.result(joined(c, values, axis_of(node, values[0].rank)))


def expanded(c: Context, value: Value, shape: Sequence[Dim]) -> Value:
    return moved(c, value, shape, broadcast(value.shape, shape))


@operator("Expand")
def expand(node: Node, c: Context) -> None:
    value, wanted = c.input(0), c.constant(1)
    assert wanted is not None
    rank = max(value.rank, wanted.size)
    own = [*[1] * (rank - value.rank), *value.shape]
    other = [*[1] * (rank - wanted.size), *wanted.tolist()]
    shape = [two if one == 1 else one for one, two in zip(own, other, strict=True)]
    c.result(expanded(c, value, shape))


@operator("Tile")
def tile(node: Node, c: Context) -> None:
    value, repeats = c.input(0), c.constant(1)
    assert repeats is not None
    steps = strides_of(value.shape)
    shape = [number for pair in zip(repeats.tolist(), value.shape, strict=True) for number in pair]
    along = [number for step in steps for number in (0, step)]
    c.result(c.alias(moved(c, value, shape, along),
                     [product(pair) for pair in zip(repeats.tolist(), value.shape, strict=True)]))


def padded(c: Context, value: Value, before: Sequence[int], after: Sequence[int], number: object) -> Value:
    """With a constant around; negative sizes cut off. The shape has to be known."""
    shape = c.known(value)
    if not any(before) and not any(after):
        return value
    steps = [int(step) for step in strides_of(shape) if isinstance(step, int)]
    kept = [size + min(low, 0) + min(high, 0) for size, low, high in zip(shape, before, after, strict=True)]
    whole = [size + low + high for size, low, high in zip(shape, before, after, strict=True)]
    result = c.new(value.dtype, whole)
    if kept != whole:
        fill(c, result, number)
    target = [int(step) for step in strides_of(whole) if isinstance(step, int)]
    if all(size > 0 for size in kept):
        copy(c, value, result, kept, steps, target,
             start=sum(max(-low, 0) * step for low, step in zip(before, steps, strict=True)),
             to=sum(max(low, 0) * step for low, step in zip(before, target, strict=True)))
    return result


@operator("Pad")
def pad(node: Node, c: Context) -> None:
    value = c.input(0)
    mode = node.attributes.get("mode", "constant")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if c.opset < 11:
        pads, number, axes = node.attributes["pads"], node.attributes.get("value", 0.0), None
    else:
        given, filler, axes = c.constant(1), c.constant(2), c.constant(3)
        assert given is not None
        pads, number = given.tolist(), 0 if filler is None else filler.item()
    rank = value.rank
    before, after = [0] * rank, [0] * rank
    chosen = range(rank) if axes is None else axes.tolist()
    for at, axis in enumerate(chosen):
        before[axis], after[axis] = int(pads[at]), int(pads[at + len(pads) // 2])
    if mode == "constant":
        c.result(padded(c, value, before, after, number))
        return
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        if low or high:
            size = c.known(value)[axis]
            around = [(max(low, 0), max(high, 0))]
            whole = np.pad(np.arange(size), around, mode=mode)  # type: ignore[arg-type]
            index = whole[max(-low, 0):][:size + low + high]
            value = pick(c, value, axis, Value(np.dtype(np.int32), (len(index),), array=index.astype(np.int32)))
    c.result(value)


def _blocks(node: Node, c: Context, *, deeper: bool) -> None:
    value = c.input(0)
    batch, channels, rows, columns = c.known(value)
    size = int(node.attributes["blocksize"])
    mode = node.attributes.get("mode", "DCR")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if deeper:
        shape = [batch, channels, rows // size, size, columns // size, size]
        order, to = (0, 3, 5, 1, 2, 4), [batch, channels * size * size, rows // size, columns // size]
    else:
        few = channels // size ** 2
        shape = [batch, size, size, few, rows, columns] if mode == "DCR" else [batch, few, size, size, rows, columns]
        order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
        to = [batch, few, rows * size, columns * size]
    steps = strides_of(shape)
    c.result(c.alias(moved(c, value, [shape[axis] for axis in order], [steps[axis] for axis in order]), to))


@operator("DepthToSpace")
def depth_to_space(node: Node, c: Context) -> None:
    _blocks(node, c, deeper=False)


@operator("SpaceToDepth")
def space_to_depth(node: Node, c: Context) -> None:
    _blocks(node, c, deeper=True)


@operator("Trilu")
def triangle(node: Node, c: Context) -> None:
    value = c.input(0)
    shape = c.known(value)
    shift = 0 if (array := c.constant(1)) is None else int(array.item())
    ones = np.ones(shape[-2:], np.bool_)
    mask = np.triu(ones, shift) if node.attributes.get("upper", 1) else np.tril(ones, shift)
    zero = Value(value.dtype, (), array=np.zeros((), value.dtype))
    c.result(each(c, "where", "x0 ? x1 : x2",
                  [Value(np.dtype(np.bool_), mask.shape, array=mask), value, zero], value.dtype))
