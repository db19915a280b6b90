"""Quantising a pending result: the stages of a store that do it, and the layer that has them."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cores.arch.numerics import FIRST_BITS
from gen.ir.graph import Requantize, Residual, Tensor
from gen.onnx import binary as onnx_binary
from gen.onnx import layers as onnx_layers
from gen.onnx.branches import branch_quantisation, real_range, same
from gen.onnx.model import Node
from gen.onnx.values import Pending, PendingAdd, Quantised, Real
from sim.golden import quantize_multiplier, quantize_residual

if TYPE_CHECKING:
    from gen.onnx.importer import Importer

__all__ = ["emit", "emit_sum"]


def _bounds(importer: "Importer", node: Node, low: float, high: float, scale: float, zero_point: int,
            bits: int = 8) -> tuple[int, int]:
    """Clip bounds in quantised units; quantising is monotonic, so clipping commutes with it."""
    with np.errstate(over="ignore"):    # infinite is as good
        steps = np.rint(np.array([low, high], np.float32) / np.float32(scale)) + zero_point
    lower, upper = (int(v) for v in np.clip(steps, -(1 << bits - 1), (1 << bits - 1) - 1))
    if low > high:
        importer.fail(node, f"clips to an empty range, {low:g}..{high:g}")
    return lower, upper


def _requantized(importer: "Importer", node: Node, value: Pending, scale: float, zero_point: int,
                 bits: int = 8) -> tuple[Pending, Requantize]:
    """The stage that quantises ``value``, in units that may have to be finer ones for it."""
    value = onnx_binary.finer_units(importer, value, scale)
    try:
        multiplier, shift = quantize_multiplier(value.scale / scale)
    except ValueError as error:
        importer.fail(node, f"cannot requantise the result of {value.name} ({error}); check the scales")
    bias = onnx_binary.even_bias(importer, value, value.bias / value.scale) + value.offset
    if not (np.abs(bias) < 2**31).all():
        importer.fail(node, f"the bias of {value.name} does not fit 32 bits; check the scales")
    low, high = _bounds(importer, node, value.low, value.high, scale, zero_point, bits)
    return value, Requantize(bias.astype(np.int64), multiplier, shift, zero_point, low, high)


def emit(importer: "Importer", node: Node, value: Pending, scale: float, zero_point: int, unsigned: bool) -> Quantised:
    """Put a quantised layer into the graph."""
    value, requantize = _requantized(importer, node, value, scale, zero_point)
    return importer.add_layer(node, value, value.order, value.shape, requantize, scale=scale, zero_point=zero_point,
                              unsigned=unsigned)


def emit_sum(importer: "Importer", node: Node, value: PendingAdd, scale: float, zero_point: int,
             unsigned: bool) -> Quantised:
    """A layer of two stages, the second of which adds.

    It is the layer of an operand that the model does not quantise, else a copy of one; `fuse_residual` moves that
    into the operand's layer.
    """
    low, high = _bounds(importer, node, value.low, value.high, scale, zero_point)
    if isinstance(value.a, Pending):
        layer, first, middle = _branch(importer, node, value.a, value.b, scale, (
            (low + 0.5 - zero_point) * scale, (high - 0.5 - zero_point) * scale))
        layer = replace(layer, nodes=(*layer.nodes, *value.nodes))
    else:
        source = importer.tensors[value.a.quantised.tensor]
        layer = replace(onnx_layers.copy(importer, node, value.a), name=value.name, nodes=value.nodes)
        middle = Tensor(f"{value.name}/middle", source.shape, value.a.scale, value.a.zero_point)
        first = same(middle, source.shape[0])
    try:
        multiplier_a, multiplier_b, shift = quantize_residual(middle.scale / scale, value.b.scale / scale)
    except ValueError as error:
        importer.fail(node, f"cannot requantise the result of {value.name} ({error}); check the scales")
    residual = Residual(
        middle=middle, other=value.b.quantised.tensor, multiplier_a=multiplier_a, multiplier_b=multiplier_b,
        shift=shift, zero_point=zero_point, low=low, high=high,
        constant=-(middle.zero_point * multiplier_a + value.b.zero_point * multiplier_b))
    return importer.add_layer(node, layer, value.order, middle.shape, first, residual, scale=scale,
                              zero_point=zero_point, unsigned=unsigned)


def _branch(importer: "Importer", node: Node, value: Pending, other: Real, scale: float,
            total: tuple[float, float]) -> tuple[Pending, Requantize, Tensor]:
    """First stage of a layer's result that the model adds to ``other`` without quantising it.

    ``total``: range of the sum. The zero point, which may be any number, goes into the bias.
    """
    found = branch_quantisation(real_range(importer, value), real_range(importer, other), total, value.scale, scale)
    if found is None:
        importer.fail(node, f"adds the unquantised result of {value.name}, for which {FIRST_BITS} bits beside this "
                            f"sum's are too coarse; put QuantizeLinear and DequantizeLinear behind {value.name}")
    step, point = found
    moved = replace(value, bias=value.bias + point * step, low=value.low + point * step,
                    high=value.high + point * step)
    return *_requantized(importer, node, moved, step, 0, FIRST_BITS), Tensor(
        f"{value.name}/middle", value.shape, step, point)
