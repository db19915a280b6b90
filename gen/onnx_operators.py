"""Operators of plain ONNX, on the values of `gen.onnx_values`.

A handler takes (importer, node, input values) and returns the value of the node's first output. ValueError, TypeError and
the like that a malformed node provokes are turned into a GraphError by the importer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from gen.ir import Conv, HostStep, Pool
from gen.onnx_model import Node
from gen.onnx_values import (
    Constant,
    Host,
    Pending,
    PendingAdd,
    Quantised,
    QuantisedConstant,
    RawInput,
    Real,
    Value,
    channels_shape,
    clipped,
)
from gen.windows import Windows, counts, resolve

if TYPE_CHECKING:
    from gen.onnx_import import Importer

__all__ = ["HANDLERS", "add", "average_pool", "convolution", "copy", "global_average", "product"]

Handler = Callable[["Importer", Node, Sequence[Value | None]], Value]
HANDLERS: dict[str, Handler] = {}


def handles(*operators: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(operators, handler))
        return handler
    return register


def at(inputs: Sequence[Value | None], index: int) -> Value | None:
    return inputs[index] if index < len(inputs) else None


# -- quantising ----------------------------------------------------------------------------------------------------


def zero_point(importer: "Importer", node: Node, value: Value | None, default: np.dtype | type = np.uint8) -> tuple[int, bool]:
    """(zero point, unsigned) of an activation; its type is that of the quantised tensor."""
    if value is None:
        return 0, np.dtype(default) == np.uint8
    array = importer.constant(node, value, "the zero point")
    if array.dtype not in (np.int8, np.uint8):
        importer.fail(node, f"activations must be int8 or uint8, not {array.dtype}; quantise the model to 8 bits")
    return int(importer.scalar(node, value, "the zero point")), array.dtype == np.uint8


@handles("QuantizeLinear")
def quantize_linear(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    default: type = np.uint8
    if node.attributes.get("output_dtype"):
        default = helper.tensor_dtype_to_np_dtype(node.attributes["output_dtype"]).type
        if default not in (np.int8, np.uint8):
            importer.fail(node, f"activations must be int8 or uint8, not {np.dtype(default)}; quantise the model to 8 bits")
    point, unsigned = zero_point(importer, node, at(inputs, 2), default)
    return importer.quantize(node, inputs[0], importer.activation_scale(node, inputs[1]), point, unsigned)


@handles("DequantizeLinear")
def dequantize_linear(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value, scale, point = inputs[0], inputs[1], at(inputs, 2)
    if isinstance(value, Constant):
        if node.attributes.get("block_size"):
            importer.fail(node, "block-wise scales are not supported; quantise weights per tensor or per output channel")
        scales = importer.constant(node, scale, "the scale")
        points = importer.constant(node, point, "the zero point") if point is not None else np.zeros(1, np.int64)
        axis = int(node.attributes.get("axis", 1))
        if scales.size > 1 and scales.size != value.array.shape[axis]:
            importer.fail(node, f"{scales.size} scales do not fit axis {axis} of a constant of shape {value.array.shape}")
        return QuantisedConstant(value.array, scales.reshape(-1), points.reshape(-1), axis % max(1, value.array.ndim))
    number = importer.activation_scale(node, scale)
    if isinstance(value, Host):
        onnx_point, unsigned = zero_point(importer, node, point)
        return value.then(HostStep("dequantize", {"scale": number, "zero_point": onnx_point, "unsigned": unsigned}))
    if not isinstance(value, Quantised):
        importer.fail(node, "its input is not a quantised tensor")
    onnx_point, unsigned = zero_point(importer, node, point, np.uint8 if value.unsigned else np.int8)
    if unsigned != value.unsigned:
        importer.fail(node, "the zero point's type differs from that of the tensor")
    return Real(value, number, onnx_point - 128 if unsigned else onnx_point)


# -- arrangement ---------------------------------------------------------------------------------------------------


def _rearranged(importer: "Importer", node: Node, value: Value | None, change: Callable[[np.ndarray], np.ndarray]) -> Value:
    """``value`` with its elements in the arrangement that ``change`` makes of an array of its shape."""
    match value:
        case Real():
            return replace(value, quantised=replace(value.quantised, order=change(value.order)))
        case Quantised() | RawInput():
            return replace(value, order=change(value.order))
        case Pending() | PendingAdd():
            return replace(value, order=change(value.order), nodes=(*value.nodes, node.name))
        case QuantisedConstant() if value.scale.size == value.zero_point.size == 1:
            return replace(value, array=change(value.array))
        case Host():
            before = np.arange(value.order.size).reshape(value.order.shape)
            after = change(before)
            if not np.array_equal(before.ravel(), after.ravel()):
                importer.fail(node, "rearranges an output of the processor's part; remove it from the model")
            return value.then(HostStep("reshape", {"shape": (-1, *after.shape[1:])}), after)
    importer.fail(node, "its input cannot be rearranged")


def _keeps_samples(importer: "Importer", node: Node, order: np.ndarray) -> np.ndarray:
    if order.ndim < 2 or order.shape[0] != 1:
        importer.fail(node, f"makes shape {order.shape} of one sample; the first axis must stay that of the samples")
    return order


@handles("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    def change(array: np.ndarray) -> np.ndarray:
        if node.op == "Flatten":
            axis = int(node.attributes.get("axis", 1)) % (array.ndim + 1)
            return array.reshape(int(np.prod(array.shape[:axis])), -1)
        if node.op == "Reshape":
            wanted = [int(n) for n in importer.constant(node, at(inputs, 1), "the shape").reshape(-1)]
            if not node.attributes.get("allowzero"):
                wanted = [array.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
            if len(wanted) > 1 and wanted[0] == -1 and -array.size // int(np.prod(wanted[1:])) == -1:
                wanted[0] = 1
            return array.reshape(wanted)
        axes = node.attributes.get("axes")
        if axes is None and at(inputs, 1) is not None:
            axes = importer.constant(node, inputs[1], "the axes").reshape(-1).tolist()
        if node.op == "Unsqueeze":
            return np.expand_dims(array, tuple(axes))
        return array.squeeze(tuple(axes) if axes is not None else tuple(i for i in range(1, array.ndim) if array.shape[i] == 1))

    if isinstance(inputs[0], QuantisedConstant):
        return _rearranged(importer, node, inputs[0], change)
    return _rearranged(importer, node, inputs[0], lambda array: _keeps_samples(importer, node, change(array)))


@handles("Transpose")
def transpose(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value, axes = inputs[0], node.attributes.get("perm")
    if isinstance(value, QuantisedConstant):
        axes = axes or list(range(value.array.ndim))[::-1]
        return replace(value, array=value.array.transpose(axes), axis=list(axes).index(value.axis))
    return _rearranged(importer, node, value, lambda array: _keeps_samples(importer, node, array.transpose(axes)))


@handles("Identity", "Dropout")
def identity(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if inputs[0] is None:
        importer.fail(node, "has no input")
    return inputs[0]


@handles("Shape")
def shape(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value = inputs[0]
    if value is None or isinstance(value, Constant | QuantisedConstant):
        importer.fail(node, "has no activation as its input")
    dims = value.order.shape
    return Constant(np.array(dims[node.attributes.get("start", 0):node.attributes.get("end", len(dims))], np.int64))


# -- activation functions ------------------------------------------------------------------------------------------


@handles("Relu", "Clip")
def clip(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    low, high = (0.0, np.inf) if node.op == "Relu" else (-np.inf, np.inf)
    if node.op == "Clip":
        low = importer.scalar(node, at(inputs, 1), "the minimum", float(node.attributes.get("min", -np.inf)))
        high = importer.scalar(node, at(inputs, 2), "the maximum", float(node.attributes.get("max", np.inf)))
    value = inputs[0]
    if isinstance(value, Real):
        value = copy(importer, node, importer.activation(node, value))
        return replace(value, low=low, high=high)
    if isinstance(value, Pending | PendingAdd):
        return clipped(value, low, high, node.name)
    importer.activation(node, value)
    raise AssertionError("activation() refuses all other values")


@handles("Softmax")
def softmax(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value = inputs[0]
    if isinstance(value, Host):
        importer.fail(node, "follows an operator of the processor's part; only one Softmax may end a model")
    if not isinstance(value, Real):
        importer.activation(node, value)
        raise AssertionError("activation() refuses all other values")
    host, dims = importer.host(value), value.order.shape
    old = importer.model.opset < 13         # all axes from ``axis`` on are one
    axis = int(node.attributes.get("axis", 1 if old else -1)) % len(dims)
    if axis == 0:
        importer.fail(node, "is over the samples; give it another axis")
    if not old or int(np.prod(dims[axis + 1:])) == 1:
        return host.then(HostStep("softmax", {"axis": axis}))
    flat = host.then(HostStep("reshape", {"shape": (-1, *dims[1:axis], int(np.prod(dims[axis:])))}))
    return flat.then(HostStep("softmax", {"axis": axis})).then(HostStep("reshape", {"shape": (-1, *dims[1:])}))


# -- arithmetic ----------------------------------------------------------------------------------------------------


def _feature_map(importer: "Importer", node: Node, value: Value | None) -> tuple[Real, tuple[int, int, int]]:
    """An activation whose arrangement is that of its tensor in memory, and its (C, H, W)."""
    real = importer.activation(node, value)
    tensor = importer.tensors[real.quantised.tensor]
    dims = channels_shape(real.order.shape)
    if dims is None or len(real.order.shape) < 3:
        importer.fail(node, f"its input has shape {real.order.shape}; two spatial axes at most, and channels before them")
    if dims != tensor.shape or not np.array_equal(real.order.ravel(), np.arange(real.order.size)):
        importer.fail(node, f"its input is a rearrangement of tensor {tensor.name}; the machine moves no data, "
                            "reshape and transpose only in front of a Gemm or at an input or output")
    return real, tensor.shape


def _result(dims: tuple[int, int, int], rank: int) -> np.ndarray:
    """The order of a layer's own result in ONNX shape."""
    spatial = {2: (), 3: dims[2:], 4: dims[1:]}[rank]
    return np.arange(int(np.prod(dims))).reshape(1, dims[0], *spatial)


def weights_of(importer: "Importer", node: Node, value: Value | None, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights with output channels first -> (int16 with the zero point subtracted, their scale per output channel)."""
    if isinstance(value, Constant):
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
    result = np.zeros((oc, ic * groups, *kernel), weights.dtype)
    for group in range(groups):
        rows = slice(group * (oc // groups), (group + 1) * (oc // groups))
        result[rows, group * ic:(group + 1) * ic] = weights[rows]
    return result


def _pending(node: Node, source: Real, weights: np.ndarray, weight_scale: np.ndarray, bias: np.ndarray, depthwise: bool,
             windows: Windows, order: np.ndarray) -> Pending:
    total = weights.sum(axis=(1, 2, 3), dtype=np.int64)
    return Pending(
        node.name, dict(layer=Conv, input=source.quantised.tensor, weights=weights, depthwise=depthwise, stride=windows.stride,
                        pads=windows.pads),
        (weights.shape[0], *windows.output), source.scale * weight_scale, -source.zero_point * total, bias, order, (node.name,))


def _bias(importer: "Importer", node: Node, value: Value | None, channels: int) -> np.ndarray:
    if value is None:
        return np.zeros(channels)
    return np.broadcast_to(importer.constant(node, value, "the bias").astype(np.float64).reshape(-1), (channels,)).copy()


@handles("Conv")
def convolution(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    source, dims = _feature_map(importer, node, inputs[0])
    weights, scale = weights_of(importer, node, inputs[1], 0)
    rank = len(source.order.shape)
    if weights.ndim != rank:
        importer.fail(node, f"weights of shape {weights.shape} on an input of shape {source.order.shape}")
    if any(d != 1 for d in node.attributes.get("dilations", [])):
        importer.fail(node, "dilation is not supported; train or export the model without it")
    windows = resolve(node.attributes, dims[1:], weights.shape[2:])
    if rank == 3:
        weights = weights[:, :, None, :]
    groups = int(node.attributes.get("group", 1))
    depthwise = groups == dims[0] == weights.shape[0] > 1
    if not depthwise and groups > 1:
        weights = _ungrouped(weights, groups)
    if weights.shape[1] != (1 if depthwise else dims[0]):
        importer.fail(node, f"weights of {weights.shape[1]} channels on an input of {dims[0]}")
    if any(windows.pads) and importer.tensors[source.quantised.tensor].zero_point != source.zero_point:
        importer.fail(node, "pads a tensor that was quantised with another zero point")
    bias = _bias(importer, node, at(inputs, 2), weights.shape[0])
    order = _result((weights.shape[0], *windows.output), rank)
    return _pending(node, source, weights, scale, bias, depthwise, windows, order)


def product(importer: "Importer", node: Node, value: Value | None, weights: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> Value:
    """A matrix product with weights (OC, F) as a convolution.

    A vector's kernel covers its tensor, whatever its arrangement; rows of channels (..., F) are pixels of a 1x1 convolution.
    """
    real = importer.activation(node, value)
    tensor = importer.tensors[real.quantised.tensor]
    channels, height, width = tensor.shape
    outputs, features = weights.shape
    if real.order.shape[-1] != features:
        importer.fail(node, f"weights of {features} rows on an input of shape {real.order.shape}")
    if real.order.size == features:
        spread = np.zeros((outputs, features), np.int16)
        spread[:, real.order.ravel()] = weights
        windows = Windows((height, width), (1, 1), (0, 0, 0, 0), (1, 1))
        order = np.arange(outputs).reshape(*real.order.shape[:-1], outputs)
        return _pending(node, real, spread.reshape(outputs, *tensor.shape), scale, bias, False, windows, order)
    if not np.array_equal(real.order.reshape(-1, features).T.ravel(), np.arange(real.order.size)):
        importer.fail(node, "its input is neither a vector nor pixels with their channels last; the machine moves no data")
    windows = Windows((1, 1), (1, 1), (0, 0, 0, 0), (height, width))
    order = np.arange(outputs * height * width).reshape(outputs, -1).T.reshape(*real.order.shape[:-1], outputs)
    return _pending(node, real, weights.reshape(outputs, channels, 1, 1), scale, bias, False, windows, order)


@handles("Gemm", "MatMul")
def matrix_product(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if node.attributes.get("transA"):
        importer.fail(node, "transA is not supported")
    axis = 0 if node.attributes.get("transB") else 1
    constant = inputs[1]
    if isinstance(constant, QuantisedConstant) and constant.array.ndim != 2:
        importer.fail(node, f"its weights must be a matrix, not of shape {constant.array.shape}")
    weights, scale = weights_of(importer, node, constant, axis)
    bias = _bias(importer, node, at(inputs, 2), weights.shape[0]) * float(node.attributes.get("beta", 1.0))
    alpha = float(node.attributes.get("alpha", 1.0))
    if alpha <= 0:
        importer.fail(node, f"alpha must be positive, not {alpha}")
    return product(importer, node, inputs[0], weights, scale * alpha, bias)


@handles("Add")
def add(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    values = list(inputs)
    constants = [v for v in values if isinstance(v, Constant | QuantisedConstant)]
    others = [v for v in values if isinstance(v, Pending)]
    if len(constants) == 1 and len(others) == 1:
        return _add_bias(importer, node, others[0], importer.constant(node, constants[0], "the bias"))
    a, b = (importer.activation(node, v, f"operand {node.inputs[i]}") for i, v in enumerate(values))
    shapes = [importer.tensors[v.quantised.tensor].shape for v in (a, b)]
    if shapes[0] != shapes[1] or not np.array_equal(a.order, b.order):
        importer.fail(node, f"operands of shapes {a.order.shape} and {b.order.shape} are not arranged alike; "
                            "the machine adds tensors of one shape")
    return PendingAdd(node.name, a, b, a.order, (node.name,))


def _add_bias(importer: "Importer", node: Node, value: Pending, constant: np.ndarray) -> Pending:
    """A constant for each channel, added to a layer's result."""
    if np.isfinite([value.low, value.high]).any():
        importer.fail(node, f"adds a constant behind an activation function of {value.name}, which is not quantised")
    spread = np.broadcast_to(constant.astype(np.float64), value.order.shape)
    bias = np.empty(value.order.size)
    bias[value.order.ravel()] = spread.ravel()
    channels = bias.reshape(value.shape[0], -1)
    if not (channels == channels[:, :1]).all():
        importer.fail(node, "the constant must be one number for each channel")
    return replace(value, bias=value.bias + channels[:, 0], nodes=(*value.nodes, node.name))


# -- pooling -------------------------------------------------------------------------------------------------------


def pool(node: Node, source: Real, maximum: bool, windows: Windows, count: int, order: np.ndarray, channels: int) -> Pending:
    """The maximum, or the sum divided by ``count``, of each window."""
    return Pending(
        node.name, dict(layer=Pool, input=source.quantised.tensor, maximum=maximum, kernel=windows.kernel, stride=windows.stride,
                        pads=windows.pads, pad_value=-128 if maximum else source.zero_point),
        (channels, *windows.output), np.full(channels, source.scale / count),
        np.full(channels, -source.zero_point * (1 if maximum else windows.kernel[0] * windows.kernel[1])), np.zeros(channels), order,
        (node.name,))


def copy(importer: "Importer", node: Node, source: Real) -> Pending:
    """``source``, to be requantised."""
    channels, *size = importer.tensors[source.quantised.tensor].shape
    windows = Windows((1, 1), (1, 1), (0, 0, 0, 0), (size[0], size[1]))
    return pool(node, source, False, windows, 1, source.order, channels)


@handles("MaxPool")
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
    source, dims = _feature_map(importer, node, value)
    windows = resolve(node.attributes, dims[1:])
    return pool(node, source, True, windows, 1, _result((dims[0], *windows.output), len(source.order.shape)), dims[0])


@handles("AveragePool")
def average_pool(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if any(d != 1 for d in node.attributes.get("dilations", [])):
        importer.fail(node, "dilation is not supported")
    source, dims = _feature_map(importer, node, inputs[0])
    windows = resolve(node.attributes, dims[1:])
    windows_counts = counts(node.attributes, dims[1:], windows)
    if windows_counts.min() != windows_counts.max():
        importer.fail(node, f"windows at the edge average {windows_counts.min()} values, others {windows_counts.max()}; "
                            "use count_include_pad=1, no padding or no ceil_mode")
    if any(windows.pads) and importer.tensors[source.quantised.tensor].zero_point != source.zero_point:
        importer.fail(node, "pads a tensor that was quantised with another zero point")
    order = _result((dims[0], *windows.output), len(source.order.shape))
    return pool(node, source, False, windows, int(windows_counts.flat[0]), order, dims[0])


@handles("GlobalMaxPool")
def global_max_pool(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    source, dims = _feature_map(importer, node, inputs[0])
    windows = Windows((dims[1], dims[2]), (1, 1), (0, 0, 0, 0), (1, 1))
    return pool(node, source, True, windows, 1, _result((dims[0], 1, 1), len(source.order.shape)), dims[0])


def global_average(importer: "Importer", node: Node, value: Value | None, axes: Sequence[int], keep: bool) -> Value:
    """The mean over ``axes`` of the value's shape, which must be all spatial ones."""
    source = importer.activation(node, value)
    channels, height, width = importer.tensors[source.quantised.tensor].shape
    rank, area = source.order.ndim, height * width
    axes = sorted(axis % rank for axis in axes)
    reduced = np.moveaxis(source.order, axes, range(rank - len(axes), rank)).reshape(-1, int(np.prod([source.order.shape[a] for a in axes])))
    owners = reduced // area
    if reduced.shape != (channels, area) or not (owners == owners[:, :1]).all():
        importer.fail(node, f"reduces axes {axes} of shape {source.order.shape}; only the mean over all spatial axes is supported")
    dims = [1 if i in axes else n for i, n in enumerate(source.order.shape) if keep or i not in axes]
    windows = Windows((height, width), (1, 1), (0, 0, 0, 0), (1, 1))
    return pool(node, source, False, windows, area, owners[:, 0].reshape(dims), channels)


@handles("GlobalAveragePool", "ReduceMean")
def mean(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    axes: Any = node.attributes.get("axes")
    if node.op == "GlobalAveragePool":
        axes = list(range(2, importer.activation(node, inputs[0]).order.ndim))
    elif axes is None and at(inputs, 1) is not None:
        axes = importer.constant(node, inputs[1], "the axes").reshape(-1).tolist()
    if not axes:
        importer.fail(node, "must name its axes; only the mean over all spatial axes is supported")
    return global_average(importer, node, inputs[0], axes, bool(node.attributes.get("keepdims", 1)))
