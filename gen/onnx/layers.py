"""Operators that become layers: convolutions, matrix products, sums, pools."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from gen.ir.graph import MAX_VALUES, Conv, Pool, Requantize
from gen.onnx.handlers import NodeError, Registry, at
from gen.onnx.model import Node
from gen.onnx.values import (
    Constant,
    Padded,
    Pending,
    PendingPool,
    Quantised,
    QuantisedConstant,
    Real,
    Value,
    channels_shape,
)
from gen.onnx.windows import Windows, counts, resolve
from sim.golden import quantize_multiplier

if TYPE_CHECKING:
    from gen.onnx.importer import Importer

__all__ = [
    "HANDLERS", "average_pool", "convolution", "copy", "global_average", "matrix_product", "only_copies",
    "sign_maximum", "sign_weights", "weights_of",
]

HANDLERS = Registry()

#: Weights of a layer at most.
MAX_WEIGHTS = 1 << 28


# -- arithmetic ----------------------------------------------------------------------------------------------------


def _feature_map(importer: "Importer", node: Node, value: Value | None) -> tuple[Real, tuple[int, int, int]]:
    """An activation whose arrangement is that of its tensor in memory, and its (C, H, W)."""
    real = importer.activation(node, value)
    tensor = importer.tensors[real.quantised.tensor]
    dims = channels_shape(real.order.shape)
    if dims is None or real.order.ndim < 3:
        importer.fail(node, f"its input has shape {real.order.shape}; it needs channels and one or two spatial axes")
    if dims != tensor.shape or not np.array_equal(real.order.ravel(), np.arange(real.order.size)):
        importer.fail(node, f"its input is a rearrangement of tensor {tensor.name}; the machine moves no data, "
                            "reshape and transpose only in front of a Gemm or at an input or output")
    return real, tensor.shape


def _moved(value: Real, axes: Sequence[int], to: Sequence[int]) -> Real:
    """``value`` with axes of its arrangement moved, so that channels come first when it becomes a tensor."""
    return replace(value, quantised=replace(value.quantised, order=np.moveaxis(value.order, axes, to)))


def _result(dims: tuple[int, int, int], rank: int) -> np.ndarray:
    """The order of a layer's own result in ONNX shape."""
    if prod(dims) > MAX_VALUES:
        raise NodeError(f"makes {prod(dims):,} values, at most {MAX_VALUES:,} are supported")
    spatial = {2: (), 3: dims[2:], 4: dims[1:]}[rank]
    return np.arange(prod(dims)).reshape(1, dims[0], *spatial)


def sign_weights(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights that are plus or minus one number in each output channel (axis 0) -> (-1 and 1 int16, the numbers)."""
    size = np.abs(weights.reshape(len(weights), -1))
    if not size.size or not (size == size[:, :1]).all() or not (size > 0).all():
        return None
    return np.where(weights < 0, -1, 1).astype(np.int16), size[:, 0].astype(np.float64)


def weights_of(importer: "Importer", node: Node, value: Value | None, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights with output channels first -> (int16 with the zero point subtracted, their scale per output channel)."""
    if isinstance(value, Constant):
        if value.array.dtype.kind != "f":
            importer.fail(node, f"its weights are {value.array.dtype}; put a DequantizeLinear behind them")
        weights = np.moveaxis(value.array, axis, 0)
        signs = sign_weights(weights)
        if signs is not None and np.isfinite(weights).all() and weights.min() < 0 < weights.max():
            return signs
        importer.fail(node, "its weights are float; quantise them (DequantizeLinear behind int8 weights)")
    if not isinstance(value, QuantisedConstant):
        importer.fail(node, "its weights must be constants")
    if value.array.dtype.itemsize > 1:
        importer.fail(node, f"weights must have 8 bits at most, not {value.array.dtype}")
    if max(value.scale.size, value.zero_point.size) > 1 and value.axis != axis:
        importer.fail(node, "weights must be quantised per tensor or per output channel")
    if not (np.isfinite(value.scale).all() and (value.scale > 0).all()):
        importer.fail(node, "the scales of its weights must be positive")
    weights = np.moveaxis(value.integers, axis, 0)
    return weights.astype(np.int16), np.broadcast_to(value.scale.astype(np.float64), (weights.shape[0],)).copy()


def _ungrouped(weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a grouped convolution as those of an ordinary one, with zeros."""
    oc, ic, *kernel = weights.shape
    if weights.size * groups > MAX_WEIGHTS:
        raise NodeError(f"its {groups} groups take {weights.size * groups:,} weights as a full convolution, at most "
                        f"{MAX_WEIGHTS:,} are supported")
    result = np.zeros((oc, ic * groups, *kernel), weights.dtype)
    for group in range(groups):
        rows = slice(group * (oc // groups), (group + 1) * (oc // groups))
        result[rows, group * ic:(group + 1) * ic] = weights[rows]
    return result


def _pending(node: Node, source: Real, weights: np.ndarray, weight_scale: np.ndarray, bias: np.ndarray, depthwise: bool,
             windows: Windows, order: np.ndarray, pad_value: int | None = None) -> Pending:
    total = weights.sum(axis=(1, 2, 3), dtype=np.int64)
    return Pending(
        name=node.name, nodes=(node.name,), order=order, shape=(weights.shape[0], *windows.output), layer=Conv,
        arguments=dict(input=source.quantised.tensor, weights=weights, depthwise=depthwise, stride=windows.stride,
                       pads=windows.pads, pad_value=pad_value),
        scale=source.scale * weight_scale, offset=-source.zero_point * total, bias=bias)


def _bias(importer: "Importer", node: Node, value: Value | None, channels: int, *, broadcast: bool) -> np.ndarray:
    """A bias, one number for each output channel; with ``broadcast`` one that spreads over rows of them will do."""
    if value is None:
        return np.zeros(channels)
    bias = importer.constant(node, value, "the bias").astype(np.float64)
    if bias.shape != (channels,) and not (broadcast and bias.shape in ((), (1,), (1, 1), (1, channels))):
        importer.fail(node, f"its bias has shape {bias.shape}; it must be one number for each of the {channels} "
                            "output channels")
    if not np.isfinite(bias).all():
        importer.fail(node, "its bias must be finite")
    return np.broadcast_to(bias.reshape(-1), (channels,)).copy()


@HANDLERS.handles("Conv")
def convolution(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    padded = inputs[0] if isinstance(inputs[0], Padded) else None
    source, dims = _feature_map(importer, node, padded.real if padded else inputs[0])
    weights, scale = weights_of(importer, node, inputs[1], 0)
    rank = source.order.ndim
    if weights.ndim != rank:
        importer.fail(node, f"weights of shape {weights.shape} on an input of shape {source.order.shape}")
    if any(d != 1 for d in node.attributes.get("dilations", [])):
        importer.fail(node, "dilation is not supported; train or export the model without it")
    windows = _padded_windows(importer, node, dims[1:], weights.shape[2:], padded)
    if rank == 3:
        weights = weights[:, :, None, :]
    groups = int(node.attributes.get("group", 1))
    depthwise = groups == dims[0] == weights.shape[0] > 1
    if groups < 1 or weights.shape[0] % groups:
        importer.fail(node, f"{weights.shape[0]} output channels cannot be divided into {groups} groups")
    if not depthwise and groups > 1:
        weights = _ungrouped(weights, groups)
    if weights.shape[1] != (1 if depthwise else dims[0]):
        importer.fail(node, f"weights of {weights.shape[1]} channels on an input of {dims[0]}")
    pad_value = padded.pad_value if padded else None
    if not padded and importer.tensors[source.quantised.tensor].zero_point != source.zero_point:
        pad_value = source.zero_point   # zero is elsewhere for this reader
    bias = _bias(importer, node, at(inputs, 2), weights.shape[0], broadcast=False)
    order = _result((weights.shape[0], *windows.output), rank)
    return _pending(node, source, weights, scale, bias, depthwise, windows, order, pad_value)


def _padded_windows(importer: "Importer", node: Node, size: Sequence[int], kernel: Sequence[int],
                    padded: Padded | None) -> Windows:
    """The windows of a convolution, with the padding in front of it as its own."""
    if padded is None:
        return resolve(node.attributes, size, kernel)
    pads = padded.pads
    windows = resolve(node.attributes, [size[0] + pads[0] + pads[2], size[-1] + pads[1] + pads[3]][-len(size):], kernel)
    if any(windows.pads):
        if padded.pad_value != padded.real.zero_point:
            importer.fail(node, "pads once more around padding that is not zero")
        pads = tuple(a + b for a, b in zip(pads, windows.pads, strict=True))  # type: ignore[assignment]
    return replace(windows, pads=pads)


def _product(importer: "Importer", node: Node, value: Value | None, weights: np.ndarray, scale: np.ndarray,
             bias: np.ndarray) -> Pending:
    """A matrix product with weights (OC, F) as a convolution.

    A vector's kernel covers its tensor, whatever its arrangement; rows of channels (..., F) are pixels of a 1x1
    convolution.
    """
    if not isinstance(value, Real):
        importer.refuse(node, value, "its input")
    before, (outputs, features) = value.order.shape, weights.shape
    if before[-1] != features:
        importer.fail(node, f"weights of {features} rows on an input of shape {before}")
    if value.order.size == features:
        real = importer.activation(node, value)
        shape = importer.tensors[real.quantised.tensor].shape
        spread = np.zeros((outputs, features), np.int16)
        spread[:, real.order.ravel()] = weights
        windows = Windows(shape[1:], (1, 1), (0, 0, 0, 0), (1, 1))
        order = np.arange(outputs).reshape(*before[:-1], outputs)
        return _pending(node, real, spread.reshape(outputs, *shape), scale, bias, False, windows, order)
    real = importer.activation(node, _moved(value, [-1], [1]))
    channels, *size = importer.tensors[real.quantised.tensor].shape
    if channels != features or not np.array_equal(real.order.ravel(), np.arange(real.order.size)):
        importer.fail(node, "its input is neither a vector nor pixels with channels last; the machine moves no data")
    windows = Windows((1, 1), (1, 1), (0, 0, 0, 0), (size[0], size[1]))
    order = np.arange(outputs * size[0] * size[1]).reshape(outputs, -1).T.reshape(*before[:-1], outputs)
    return _pending(node, real, weights.reshape(outputs, channels, 1, 1), scale, bias, False, windows, order)


@HANDLERS.handles("Gemm", "MatMul")
def matrix_product(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if node.attributes.get("transA"):
        importer.fail(node, "transA is not supported")
    axis = 0 if node.attributes.get("transB") else 1
    constant = inputs[1]
    if isinstance(constant, QuantisedConstant) and constant.array.ndim != 2:
        importer.fail(node, f"its weights must be a matrix, not of shape {constant.array.shape}")
    weights, scale = weights_of(importer, node, constant, axis)
    bias = _bias(importer, node, at(inputs, 2), weights.shape[0], broadcast=True)
    bias *= float(node.attributes.get("beta", 1.0))
    alpha = float(node.attributes.get("alpha", 1.0))
    if alpha <= 0:
        importer.fail(node, f"alpha must be positive, not {alpha}")
    return _product(importer, node, inputs[0], weights, scale * alpha, bias)


# -- pooling -------------------------------------------------------------------------------------------------------


def _pool(node: Node, source: Real, maximum: bool, windows: Windows, count: int, order: np.ndarray,
          channels: int) -> Pending:
    """The maximum, or the sum divided by ``count``, of each window."""
    summands = 1 if maximum else windows.kernel[0] * windows.kernel[1]
    return Pending(
        name=node.name, nodes=(node.name,), order=order, shape=(channels, *windows.output), layer=Pool,
        arguments=dict(input=source.quantised.tensor, maximum=maximum, kernel=windows.kernel, stride=windows.stride,
                       pads=windows.pads, pad_value=-128 if maximum else source.zero_point),
        scale=np.full(channels, source.scale / count), offset=np.full(channels, -source.zero_point * summands),
        bias=np.zeros(channels))


def copy(importer: "Importer", node: Node, source: Real) -> Pending:
    """``source``, to be requantised."""
    channels, *size = importer.tensors[source.quantised.tensor].shape
    windows = Windows((1, 1), (1, 1), (0, 0, 0, 0), (size[0], size[1]))
    return _pool(node, source, False, windows, 1, source.order, channels)


def only_copies(value: Pending) -> bool:
    """Whether a result is `copy`'s, but for its scale and bias."""
    kernel = value.arguments.get("kernel")
    return value.layer is Pool and kernel == (1, 1) and value.arguments["stride"] == (1, 1) and not any(
        value.arguments["pads"])


@HANDLERS.handles("MaxPool")
def max_pool(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if any(d != 1 for d in node.attributes.get("dilations", [])) or node.attributes.get("storage_order"):
        importer.fail(node, "dilations and column-major storage are not supported")
    if len(node.outputs) > 1:
        importer.fail(node, "the second output (indices) is not supported")
    value = inputs[0]
    if isinstance(value, Quantised):        # the maximum is the same in any scale
        real = Real(importer.tensor(value, 1.0, 0), 1.0, 0)
        tensor = importer.tensors[real.quantised.tensor]
        result = max_pool(importer, node, [replace(real, scale=tensor.scale, zero_point=tensor.zero_point)])
        point = tensor.zero_point + 128 if value.unsigned else tensor.zero_point
        return importer.quantize(node, result, tensor.scale, point, value.unsigned)
    if isinstance(value, Pending) and value.layer is Conv:
        return _pool_later(importer, node, value)
    source, dims = _feature_map(importer, node, value)
    windows = resolve(node.attributes, dims[1:])
    order = _result((dims[0], *windows.output), source.order.ndim)
    result = _pool(node, source, True, windows, 1, order, dims[0])
    if not importer.tensors[source.quantised.tensor].signs or source.scale != 1:
        return result
    return pool_signs(importer, node, result, order)


def pool_signs(importer: "Importer", node: Node, value: Pending, order: np.ndarray) -> Real:
    """Emit the maximum of signs, which needs no scale."""
    channels = value.shape[0]
    unit, shift = quantize_multiplier(np.ones(channels))
    stage = Requantize(np.zeros(channels, np.int64), unit, shift, 0, -1, 1)
    return Real(importer.add_layer(node, value, order, value.shape, stage, signs=True), 1.0, 0)


def sign_maximum(importer: "Importer", node: Node, source: Real, value: PendingPool) -> Real:
    """The maximum of signs in the windows of ``value``."""
    result = _pool(node, source, True, value.windows, 1, value.order, value.shape[0])
    return pool_signs(importer, node, replace(result, name=value.name, nodes=value.nodes), value.order)


def _pool_later(importer: "Importer", node: Node, value: Pending) -> PendingPool:
    """The maximum of a result that a Sign will threshold."""
    if np.isfinite([value.low, value.high]).any():
        importer.refuse(node, value, "its input")
    if not np.array_equal(value.order.ravel(), np.arange(value.order.size)) or value.order.ndim not in (3, 4):
        importer.fail(node, "its input is a rearrangement; the machine moves no data")
    windows = resolve(node.attributes, value.shape[1:])
    shape, ones = (value.shape[0], *windows.output), np.ones(value.shape[0])
    return PendingPool(
        name=node.name, nodes=(node.name,), order=_result(shape, value.order.ndim), inner=value, windows=windows,
        shape=shape, factor=ones, shift=0 * ones)


@HANDLERS.handles("AveragePool")
def average_pool(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if any(d != 1 for d in node.attributes.get("dilations", [])):
        importer.fail(node, "dilation is not supported")
    source, dims = _feature_map(importer, node, inputs[0])
    windows = resolve(node.attributes, dims[1:])
    averaged = counts(node.attributes, dims[1:], windows)
    if averaged.min() != averaged.max():
        importer.fail(node, f"windows at the edge average {averaged.min()} values, others {averaged.max()}; "
                            "use count_include_pad=1, no padding or no ceil_mode")
    order = _result((dims[0], *windows.output), source.order.ndim)
    return _pool(node, source, False, windows, int(averaged.flat[0]), order, dims[0])


@HANDLERS.handles("GlobalMaxPool")
def global_max_pool(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    source, dims = _feature_map(importer, node, inputs[0])
    windows = Windows((dims[1], dims[2]), (1, 1), (0, 0, 0, 0), (1, 1))
    return _pool(node, source, True, windows, 1, _result((dims[0], 1, 1), source.order.ndim), dims[0])


def global_average(importer: "Importer", node: Node, value: Value | None, axes: Sequence[int], keep: bool) -> Value:
    """The mean over ``axes`` of the value's shape, which must be all spatial ones."""
    if not isinstance(value, Real):
        importer.refuse(node, value, "its input")
    before = value.order.shape
    axes = sorted(axis % len(before) for axis in axes)
    source = importer.activation(node, _moved(value, axes, range(len(before) - len(axes), len(before))))
    channels, height, width = importer.tensors[source.quantised.tensor].shape
    owners = source.order.reshape(-1, int(np.prod([before[axis] for axis in axes]))) // (height * width)
    if owners.shape != (channels, height * width) or not (owners == owners[:, :1]).all():
        importer.fail(node, f"reduces axes {axes} of shape {before}; only the mean over all spatial axes is supported")
    dims = [1 if i in axes else n for i, n in enumerate(before) if keep or i not in axes]
    windows = Windows((height, width), (1, 1), (0, 0, 0, 0), (1, 1))
    return _pool(node, source, False, windows, height * width, owners[:, 0].reshape(dims), channels)


@HANDLERS.handles("GlobalAveragePool", "ReduceMean")
def mean(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if node.op == "GlobalAveragePool":
        axes = tuple(range(2, importer.activation(node, inputs[0]).order.ndim))
    else:
        axes = importer.axes(node, at(inputs, 1))
    if not axes:
        importer.fail(node, "must name its axes; only the mean over all spatial axes is supported")
    return global_average(importer, node, inputs[0], axes, bool(node.attributes.get("keepdims", 1)))
