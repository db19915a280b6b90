"""Quantising a value: the stages of a store that do it, and the layer that has them."""

from dataclasses import replace
from itertools import accumulate

import numpy as np

from cores.arch.numerics import FIRST_BITS
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.table import Table
from gen.ir.tensor import Part, Requantize, Tensor
from gen.onnx.arrangement import HEAD_BLOCK, VALUE_BLOCK
from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.context import Context
from gen.onnx.edges import integers_of_padded, padding
from gen.onnx.model import NodeError
from gen.onnx.pooling import copy
from gen.onnx.quant_scales import (
    as_convolution,
    branch_quantisation,
    coarser_scale,
    exact_quantisation,
    finer_scale,
    multiplies_signs,
    real_range,
    same,
)
from gen.onnx.refusals import refusal
from gen.onnx.values import (
    Host,
    Padded,
    Pending,
    PendingAdd,
    PendingBend,
    PendingConcat,
    PendingOperation,
    PendingPixels,
    PendingPool,
    PendingProduct,
    PendingRows,
    PendingTable,
    Quantisation,
    Quantised,
    QuantisedPadded,
    RawInput,
    Real,
    Value,
    channels_with_gaps,
)
from sim.golden import quantize_multiplier, quantize_residual

__all__ = ["padded_heads", "quantize", "settled"]

#: Accumulators of 27 bits have room for it beside the sums of a normalisation.
_LARGEST_ROW_BIAS = 1 << 25


def quantize(context: Context, value: Value | None, quantisation: Quantisation) -> Value:
    """``value`` quantised under the name of the node's output."""
    match value:
        case Host(layer=PendingRows() as layer):
            return _emit_rows(context, layer, quantisation)
        case Host():
            if context.units.machine.has("rows") and any(step.kind == "softmax" for step in value.steps):
                context.graph.left.append(value.maker)
            return value.then(quantisation.step("quantize"))
        case RawInput():
            return context.graph.quantize_input(value, quantisation, context.node.outputs[0])
        case Padded():
            return _padded(context, value, quantisation)
        case Real() if (value.scale, value.zero_point) == (quantisation.scale, quantisation.internal):
            # The same numbers, if perhaps counted from another origin: int8 for uint8.
            return replace(value.quantised, unsigned=quantisation.unsigned)
        case Real():
            return _emit(context, copy(context, padded_heads(context, value) or context.activation(value)),
                         quantisation)
        case PendingAdd():
            return _emit_sum(context, value, Result(context.node, quantisation))
        case PendingBend():
            return _emit_bend(context, value, Result(context.node, quantisation))
        case PendingOperation():
            return _emit_operation(context, value, quantisation)
        case PendingTable():
            return _emit_table(context, value, Result(context.node, quantisation))
        case PendingConcat():
            return _emit_concat(context, value, quantisation)
        case PendingPixels():
            return _emit_pixels(context, value, Result(context.node, quantisation))
        case PendingProduct():
            return _emit_product(context, value, quantisation)
        case PendingRows():
            return _emit_rows(context, value, quantisation)
        case Pending():
            return _emit(context, value, quantisation)
        case PendingPool():
            raise NodeError(f"quantises the maximum {value.name} of an unquantised result; put QuantizeLinear and "
                            "DequantizeLinear in front of that MaxPool", at=value.name, code="not-quantised")
        case Quantised() | QuantisedPadded():
            raise NodeError("its input is quantised already; put a DequantizeLinear in between, or remove the node",
                            code="quantised-twice")
    raise refusal(value, "its input")


def padded_heads(context: Context, value: Real) -> Real | None:
    """The tensor of ``value`` where that has several heads, each at a block, with the channels between them: a copy
    without those would have heads that begin within a block.
    """
    real = replace(value, quantised=context.graph.tensor(value.quantised, value.scale, value.zero_point))
    shape = context.graph.tensors[real.quantised.tensor].shape
    used = channels_with_gaps(real.order, shape)
    if used is None:
        return None
    heads = np.count_nonzero(np.diff(used, prepend=-2) > 1)
    length, span = len(used) // heads, shape[0] // heads
    lies = np.array_equal(used, (np.arange(heads)[:, None] * span + np.arange(length)).ravel())
    return real if lies and heads > 1 and span in (
        -(-length // block) * block for block in (HEAD_BLOCK, VALUE_BLOCK)) else None


def _padded(context: Context, value: Padded, quantisation: Quantisation) -> Value:
    """Exporters quantise after a Pad as in front of it; anything else makes another tensor."""
    if (value.real.scale, value.real.zero_point) != (quantisation.scale, quantisation.internal):
        return _emit(context, padding(context.graph, value), quantisation)
    quantised = replace(value.real.quantised, unsigned=quantisation.unsigned)
    padded = replace(value, real=replace(value.real, quantised=quantised))
    return QuantisedPadded(integers_of_padded(padded), context.node)


def _bounds(low: float, high: float, scale: float, zero_point: int, bits: int = 8) -> tuple[int, int]:
    """Clip bounds as quantised integers; quantising is monotonic, so clipping commutes with it."""
    with np.errstate(over="ignore"):    # infinite is as good
        steps = np.rint(np.array([low, high], np.float32) / np.float32(scale)) + zero_point
    lower, upper = (int(v) for v in np.clip(steps, -(1 << bits - 1), (1 << bits - 1) - 1))
    return lower, upper


def _requantized(graph: GraphBuilder, value: Pending, scale: float, zero_point: int,
                 bits: int = 8) -> tuple[Pending, Requantize]:
    """The stage that quantises ``value``, whose scale may have to be finer or coarser for it."""
    value = coarser_scale(graph, finer_scale(graph, value, scale), scale)
    try:
        multiplier, shift = quantize_multiplier(value.scale / scale)
    except ValueError as error:
        raise NodeError(f"cannot requantise the result of {value.name} ({error}); check the scales",
                        at=value.name, code="requantisation") from None
    exact = value.bias / value.scale
    bias = np.rint(exact) + value.offset
    # An accumulator of signs is finest with weights of a 64th; of others it is as fine as biases need it.
    off = float(np.abs(np.rint(exact) - exact).max(initial=0)) if multiplies_signs(graph, value) else 0.0
    if not (np.abs(bias) < 2**31).all():
        raise NodeError(f"the bias of {value.name} does not fit 32 bits; check the scales", at=value.name,
                        code="requantisation")
    low, high = _bounds(value.low, value.high, scale, zero_point, bits)
    return value, Requantize(bias.astype(np.int64), multiplier, shift, zero_point, low, high, off)


def _emit(context: Context, value: Pending, quantisation: Quantisation) -> Quantised:
    """Put a quantised layer into the graph."""
    value, stage = _requantized(context.graph, value, quantisation.scale, quantisation.internal)
    return context.graph.add_layer(value, stage, result=Result(context.node, quantisation))


def settled(context: Context, value: Pending | PendingAdd | PendingTable | PendingPixels, quantisation: Quantisation
            ) -> Quantised:
    """``value`` as a tensor that the model does not have."""
    result = Result(None, quantisation)
    if isinstance(value, PendingPixels):
        return _emit_pixels(context, replace(value, nodes=()), result)
    if isinstance(value, PendingTable):
        return _emit_table(context, value, result)
    if isinstance(value, PendingAdd):
        return _emit_sum(context, value, result)
    value, stage = _requantized(context.graph, value, quantisation.scale, quantisation.internal)
    return context.graph.add_layer(replace(value, nodes=()), stage, result=result)


def _emit_sum(context: Context, value: PendingAdd, result: Result) -> Quantised:
    """A layer of two stages, the second of which adds.

    It is the layer of an operand that the model does not quantise, else a copy of one; `fuse_residual` moves that
    into the operand's layer.
    """
    graph, scale, zero_point = context.graph, result.quantisation.scale, result.quantisation.internal
    low, high = _bounds(value.low, value.high, scale, zero_point)
    ends = (low + 0.5 - zero_point) * scale, (high - 0.5 - zero_point) * scale
    value = _with_tables(context, value, scale, ends)
    assert isinstance(value.b, Real) and not isinstance(value.a, PendingTable)
    if isinstance(value.a, Pending):
        if value.instead is not None and _grid_of(graph, value, scale, ends) is None:
            return _emit_sum(context, replace(value.instead(), nodes=value.nodes, order=value.order,
                                              moved_by=value.moved_by, low=value.low, high=value.high), result)
        grid = (scale, 0) if value.apart else _grid(graph, value, scale, ends)
        layer, first, middle = _branch(graph, value.a, grid)
        layer = replace(layer, nodes=(*layer.nodes, *value.nodes))
    else:
        source = graph.tensors[value.a.quantised.tensor]
        layer = replace(copy(context, value.a), name=value.name, nodes=value.nodes)
        middle = Tensor(f"{value.name}/middle", source.shape, value.a.scale, value.a.zero_point)
        first = same(middle, source.shape[0])
    try:
        multiplier_a, multiplier_b, shift = quantize_residual(middle.scale / scale, value.b.scale / scale)
    except ValueError as error:
        raise NodeError(f"cannot requantise the result of {value.name} ({error}); check the scales",
                        at=value.name, code="requantisation") from None
    added = Add(
        middle=middle, other=value.b.quantised.tensor, multiplier_a=multiplier_a, multiplier_b=multiplier_b,
        shift=shift, zero_point=zero_point, low=low, high=high,
        constant=-(middle.zero_point * multiplier_a + value.b.zero_point * multiplier_b))
    return graph.add_layer(replace(layer, order=value.order, moved_by=value.moved_by), first, added, result=result)


def _emit_bend(context: Context, value: PendingBend, result: Result) -> Quantised:
    """The layer with a LeakyRelu in its epilogue, in steps of the result, so that what is positive is rounded once.

    Where the first stage does not reach as far below zero as the result does, what is negative is a layer of its own,
    to which that of what is positive is added: one of both is zero, so either is rounded once.
    """
    graph, scale, zero_point = context.graph, result.quantisation.scale, result.quantisation.internal
    low, high = _bounds(value.low, value.high, scale, zero_point)
    lowest = max(real_range(graph, value.below)[0], (low - zero_point) * scale)
    if value.slope is not None and value.slope <= 1 and lowest >= -(1 << FIRST_BITS - 1) * scale * value.slope:
        layer, first, middle = _branch(graph, replace(value.above, name=value.below.name), (scale, 0))
        multiplier, negative, shift = quantize_residual(1.0, value.slope)
        bend = Leaky(middle=middle, multiplier=multiplier, negative=negative, shift=shift, zero_point=zero_point,
                     low=low, high=high)
        layer = replace(layer, nodes=(*value.below.nodes, *value.nodes), order=value.order, moved_by=value.moved_by)
        return graph.add_layer(layer, first, bend, result=result)
    above = settled(context, replace(value.above, low=max(value.above.low, 0.0)),
                    Quantisation(scale, zero_point, False))
    return _emit_sum(context, PendingAdd(
        name=value.name, nodes=value.nodes, order=value.order, moved_by=value.moved_by, low=value.low, high=value.high,
        a=replace(value.below, high=min(value.below.high, 0.0)), b=Real(above, scale, zero_point), apart=True), result)


def _emit_operation(context: Context, value: PendingOperation, quantisation: Quantisation) -> Quantised:
    """A copy with the operation in its epilogue; `fuse_copies`, `fuse_residual` move that into the layer before it."""
    graph, real = context.graph, value.real
    source = graph.tensors[real.quantised.tensor]
    middle = Tensor(f"{value.name}/middle", source.shape, real.scale, real.zero_point)
    bounds = _bounds(value.low, value.high, quantisation.scale, quantisation.internal)
    try:
        operation = value.operation(middle, quantisation, bounds)
    except ValueError as error:
        raise NodeError(f"cannot requantise the result of {value.name} ({error}); check the scales",
                        at=value.name, code="requantisation") from None
    layer = replace(copy(context, real), name=value.name, nodes=value.nodes, order=value.order,
                    moved_by=value.moved_by)
    return graph.add_layer(layer, same(middle, source.shape[0]), operation, result=Result(context.node, quantisation))


def _emit_table(context: Context, value: PendingTable, result: Result) -> Quantised:
    """A copy that is looked up; `fuse_copies` moves that into the layer in front of it."""
    real = padded_heads(context, value.real) or context.activation(value.real)
    source = context.graph.tensors[real.quantised.tensor]
    middle = Tensor(f"{value.name}/middle", source.shape, real.scale, real.zero_point)
    table = Table(middle, context.functions.table(value, result.quantisation))
    layer = replace(copy(context, real), name=value.name, nodes=value.nodes, moved_by=value.moved_by)
    return context.graph.add_layer(layer, same(middle, source.shape[0]), table, result=result)


def _grid_of(graph: GraphBuilder, value: PendingAdd, scale: float,
             total: tuple[float, float]) -> tuple[float, int] | None:
    """Scale and zero point for the result of a layer that the model adds without quantising it; None if it would be too
    coarse.

    ``total``: range of the sum, of which a step is ``scale``.
    """
    result = value.a
    assert isinstance(result, Pending) and isinstance(value.b, Real)
    # Nothing is gained by steps far below the layer's own.
    return exact_quantisation(result, scale) or branch_quantisation(
        real_range(graph, result), real_range(graph, value.b), total, scale, finest=float(result.scale.max()) / 16)


def _grid(graph: GraphBuilder, value: PendingAdd, scale: float, total: tuple[float, float]) -> tuple[float, int]:
    """As `_grid_of`. Raises NodeError where that is None."""
    found = _grid_of(graph, value, scale, total)
    if found is None:
        result = value.a
        assert isinstance(result, Pending)
        raise NodeError(f"adds the unquantised result of {result.name}, for which {FIRST_BITS} bits beside this "
                        f"sum's are too coarse; put QuantizeLinear and DequantizeLinear after {result.name}",
                        at=value.name, code="not-quantised")
    return found


def _with_tables(context: Context, value: PendingAdd, scale: float, total: tuple[float, float]) -> PendingAdd:
    """The sum with operands that are functions as tensors of a table; the rest as of `_grid`."""
    def range_of(operand: Real | Pending | PendingTable) -> tuple[float, float]:
        if isinstance(operand, PendingTable):
            return context.functions.range_of(operand)
        return real_range(context.graph, operand)

    def tensor(operand: PendingTable, other: Real | Pending | PendingTable) -> Real:
        grid = branch_quantisation(range_of(operand), range_of(other), total, scale, bits=8)
        if grid is None:
            raise NodeError(f"adds the unquantised result of {operand.name}, for which 8 bits beside this sum's are "
                            f"too coarse; put QuantizeLinear and DequantizeLinear after {operand.name}",
                            at=value.name, code="not-quantised")
        return Real(settled(context, operand, Quantisation(*grid, False)), *grid)

    b = tensor(value.b, value.a) if isinstance(value.b, PendingTable) else value.b
    a = tensor(value.a, b) if isinstance(value.a, PendingTable) else value.a
    return replace(value, a=a, b=b)


def _branch(graph: GraphBuilder, value: Pending, grid: tuple[float, int]) -> tuple[Pending, Requantize, Tensor]:
    """First stage of a layer's result in steps of ``grid``. Its zero point, any number, goes into the bias."""
    step, point = grid
    moved = replace(value, bias=value.bias + point * step, low=value.low + point * step,
                    high=value.high + point * step)
    middle = Tensor(f"{value.name}/middle", value.shape, step, point)
    return *_requantized(graph, moved, step, 0, FIRST_BITS), middle


def _emit_concat(context: Context, value: PendingConcat, quantisation: Quantisation) -> Quantised:
    """A tensor of which the parts become part: each as it is, or, where that cannot be, a copy."""
    graph, scale, point = context.graph, quantisation.scale, quantisation.internal
    low, high = _bounds(value.low, value.high, scale, point)
    names = [part.quantised.tensor for part in value.parts]
    channels = [graph.tensors[name].shape[0] for name in names]
    whole = graph.add_whole((sum(channels), *graph.tensors[names[0]].shape[1:]), value.order,
                            Result(context.node, quantisation))
    for part, name, first in zip(value.parts, names, accumulate(channels, initial=0), strict=False):
        place, (least, most) = Part(whole.tensor, first), graph.clip_bounds(name)
        stays = (part.scale, part.zero_point) == (scale, point) and low <= least and most <= high
        if not (stays and graph.join(name, place)):
            # What quantises the whole is of the copies, too: without them there is nothing that could be handed over.
            layer = replace(copy(context, part), name=value.name, nodes=(*value.nodes, context.node.name),
                            low=value.low, high=value.high)
            layer, stage = _requantized(graph, layer, scale, point)
            graph.add_layer(layer, stage, result=Result(None, quantisation), part=place)
    return replace(whole, moved_by=value.moved_by)


def _emit_pixels(context: Context, value: PendingPixels, result: Result) -> Quantised:
    """A layer that moves pixels of the parts: layers' results, tensors, or copies in the scale of the whole."""
    graph, quantisation = context.graph, result.quantisation
    scale, point = quantisation.scale, quantisation.internal
    low, high = _bounds(value.low, value.high, scale, point)
    names = []
    for part in value.parts:
        if isinstance(part, Real):
            least, most = graph.clip_bounds(part.quantised.tensor)
            if (part.scale, part.zero_point) == (scale, point) and low <= least and most <= high:
                names.append(part.quantised.tensor)
                continue
        layer = part if isinstance(part, Pending) else copy(context, part)
        layer = replace(layer, name=value.name, nodes=(), low=value.low, high=value.high)
        layer, stage = _requantized(graph, layer, scale, point)
        names.append(graph.add_layer(layer, stage, result=Result(None, quantisation)).tensor)
    first = graph.tensors[names[0]]
    if result.node:     # what quantises is part of the layer
        value = replace(value, nodes=(*value.nodes, result.node.name))
    tensor = graph.add_move(names, value.places, value.size, same(first, first.shape[0]),
                            made=(value, result))
    return Quantised(tensor, value.order, quantisation.unsigned, value.moved_by)


def _emit_rows(context: Context, value: PendingRows, quantisation: Quantisation) -> Quantised:
    """A layer whose biases are in steps of its sums; scales next to nothing are made large enough for that."""
    graph, point, turned = context.graph, quantisation.internal, value.turned
    # Of a channel that is turned first -1 - q is made of q, which is as wide.
    off = np.where(turned, -(1 + 2 * point) * quantisation.scale, 0.0)
    bias = np.where(turned, -value.bias, value.bias) + off
    step = np.maximum(value.scale, np.abs(bias) / _LARGEST_ROW_BIAS)
    try:
        multiplier, shift = quantize_multiplier(step / quantisation.scale)
    except ValueError as error:
        raise NodeError(f"cannot requantise the result of {value.name} ({error}); check the scales",
                        at=value.name, code="requantisation") from None
    steps = np.rint(bias / step).astype(np.int64)
    if not turned.any():
        low, high = _bounds(value.low, value.high, quantisation.scale, point)
        return graph.add_layer(value, Requantize(steps, multiplier, shift, point, low, high),
                               result=Result(context.node, quantisation))
    made = graph.add_layer(value, Requantize(steps, multiplier, shift, point, -128, 127),
                           result=Result(None, quantisation))
    signs = np.where(turned, -1, 1)
    layer = as_convolution(graph, copy(context, Real(made, quantisation.scale, point)))
    arguments = {**layer.arguments, "weights": layer.arguments["weights"] * signs.astype(np.int16)[:, None, None, None]}
    return _emit(context, replace(layer, arguments=arguments, offset=layer.offset * signs, bias=off, low=value.low,
                                  high=value.high, nodes=value.nodes), quantisation)


def _emit_product(context: Context, value: PendingProduct, quantisation: Quantisation) -> Quantised:
    """A layer for each head, which writes its channels of the whole."""
    graph, count = context.graph, len(value.heads)
    try:
        multiplier, shift = quantize_multiplier(np.full(value.outputs, value.scale / quantisation.scale))
    except ValueError as error:
        raise NodeError(f"cannot requantise the result of {value.name} ({error}); check the scales",
                        at=value.name, code="requantisation") from None
    low, high = _bounds(value.low, value.high, quantisation.scale, quantisation.internal)
    shape, result = (value.outputs, *value.size), Result(context.node, quantisation)
    # What quantises is part of each head.
    value = replace(value, nodes=(*value.nodes, context.node.name))
    whole = graph.add_whole((count * value.outputs, *value.size), value.order, result) if count > 1 else None
    for number, head in enumerate(value.heads):
        bias = head.arguments["reduced"] * int(np.prod(head.arguments["zero_points"]))
        stage = Requantize(np.full(value.outputs, bias), multiplier, shift, quantisation.internal, low, high)
        if whole is None:
            return graph.add_product(value, head, stage, shape, result=result, part=None)
        graph.add_product(value, head, stage, shape, result=Result(None, quantisation),
                          part=Part(whole.tensor, number * value.outputs))
    assert whole is not None
    return replace(whole, moved_by=value.moved_by)
