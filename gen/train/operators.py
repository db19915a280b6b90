"""ONNX operators on PyTorch tensors, as far as CNNs and transformers have them.

They are differentiable, and rounded as onnxruntime rounds.
"""

from collections.abc import Callable

import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional

from gen.train.binary import sign
from gen.train.call import Call
from gen.train.errors import TrainError
from gen.train.moving import MOVING, same_pads

__all__ = ["OPERATORS", "dequantize", "quantize"]


def _along(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    """A scale or zero point for each entry of an axis, ready to be broadcast."""
    if parameter.numel() == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if place == axis % x.ndim else 1 for place in range(x.ndim)])


def quantize(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, limits: tuple[int, int]) -> Tensor:
    """QuantizeLinear: integers, in floats; halves go to the even one.

    The gradient is that of the line through the steps, and none where integers end (a straight-through estimator).
    """
    scale, zero_point = _along(scale, x, axis), _along(zero_point, x, axis)
    real = x / scale
    return (real + (torch.round(real) - real).detach() + zero_point).clamp(*limits)


def dequantize(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    return (x - _along(zero_point, x, axis)) * _along(scale, x, axis)


def _zero_point(call: Call) -> Tensor:
    point = call.optional(2)
    return torch.zeros_like(call[1]) if point is None else point


def _padded(call: Call, x: Tensor, value: float, kernel: list[int]) -> Tensor:
    """``x`` with the padding of a window operator around it."""
    if call.attributes.get("ceil_mode", 0):
        raise TrainError("ceil_mode is not known here; export the model without it")
    if call.attributes.get("auto_pad", "NOTSET").startswith("SAME"):
        pads = same_pads(call, x, kernel)
    else:
        pads = list(call.attributes.get("pads", []))
    if not any(pads):
        return x
    axes = len(pads) // 2
    return functional.pad(x, [pads[side * axes + axis] for axis in reversed(range(axes)) for side in range(2)],
                          value=value)


def _conv(call: Call) -> Tensor:
    weights = call[1]
    x = _padded(call, call[0], 0.0, list(weights.shape[2:]))
    attributes, axes = call.attributes, weights.ndim - 2
    if axes not in (1, 2):
        raise TrainError(f"convolutions over {axes} axes are not known here")
    apply = functional.conv2d if axes == 2 else functional.conv1d
    return apply(x, weights, call.optional(2), stride=attributes.get("strides", [1] * axes),
                 dilation=attributes.get("dilations", [1] * axes), groups=attributes.get("group", 1))


def _norm(call: Call) -> Tensor:
    attributes = call.attributes
    return functional.batch_norm(
        call[0], call[3], call[4], call[1], call[2], training=call.training,
        momentum=1 - attributes.get("momentum", 0.9), eps=attributes.get("epsilon", 1e-5))


def _layer_norm(call: Call) -> Tensor:
    """Over all axes from one on."""
    x, scale, bias = call[0], call[1], call.optional(2)
    axes = list(range(call.attributes.get("axis", -1) % x.ndim, x.ndim))
    less = x - x.mean(axes, keepdim=True)
    result = scale * less * torch.rsqrt(less.square().mean(axes, keepdim=True) + call.attributes.get("epsilon", 1e-5))
    return result if bias is None else result + bias


def _rms_norm(call: Call) -> Tensor:
    x = call[0]
    axes = list(range(call.attributes.get("axis", -1) % x.ndim, x.ndim))
    return call[1] * x * torch.rsqrt(x.square().mean(axes, keepdim=True) + call.attributes.get("epsilon", 1e-5))


def _instance_norm(call: Call) -> Tensor:
    return functional.instance_norm(call[0], weight=call[1], bias=call[2], eps=call.attributes.get("epsilon", 1e-5))


def _group_norm(call: Call) -> Tensor:
    groups = call.attributes["num_groups"]
    if len(call[1]) != call[0].shape[1]:
        raise TrainError("scales of groups are not known here, only those of channels, as of opset 21")
    return functional.group_norm(call[0], groups, call[1], call[2], call.attributes.get("epsilon", 1e-5))


def _concat(call: Call) -> Tensor:
    """What the model has for one sample, as a learnt token, each of the batch gets."""
    parts = [x for x in call.inputs if x is not None]
    samples = max(map(len, parts))
    axis = call.attributes["axis"]
    return torch.cat([x.expand(samples, *x.shape[1:]) if axis and len(x) == 1 else x for x in parts], axis)


def _gemm(call: Call) -> Tensor:
    attributes = call.attributes
    a = call[0].mT if attributes.get("transA", 0) else call[0]
    b = call[1].mT if attributes.get("transB", 0) else call[1]
    result = attributes.get("alpha", 1.0) * (a @ b)
    c = call.optional(2)
    return result if c is None else result + attributes.get("beta", 1.0) * c


def _clip(call: Call) -> Tensor:
    low, high = (call.attributes.get(name, bound) if (bound := call.optional(place)) is None else bound.item()
                 for name, place in (("min", 1), ("max", 2)))
    return call[0].clamp(low, high)


def _cast(call: Call) -> Tensor:
    """Of what compares, which is 0 or 1 in floats here."""
    if call.attributes["to"] not in (TensorProto.FLOAT, TensorProto.BOOL):
        raise TrainError("only casts to float are known here")
    return call[0]


def _max_pool(call: Call) -> Tensor:
    kernel = call.attributes["kernel_shape"]
    return functional.max_pool2d(_padded(call, call[0], float("-inf"), kernel), kernel,
                                 call.attributes.get("strides", [1] * len(kernel)),
                                 dilation=call.attributes.get("dilations", 1))


def _average_pool(call: Call) -> Tensor:
    kernel = call.attributes["kernel_shape"]
    strides = call.attributes.get("strides", [1] * len(kernel))
    mean = functional.avg_pool2d(_padded(call, call[0], 0.0, kernel), kernel, strides)
    if call.attributes.get("count_include_pad", 0):
        return mean
    ones = torch.ones_like(call[0][:1, :1])
    return mean / functional.avg_pool2d(_padded(call, ones, 0.0, kernel), kernel, strides)


def _reduce_mean(call: Call) -> Tensor:
    axes = call.numbers("axes", 1) or list(range(call[0].ndim))
    return call[0].mean(axes, keepdim=bool(call.attributes.get("keepdims", 1)))


def _reduce_max(call: Call) -> Tensor:
    axes = call.numbers("axes", 1) or list(range(call[0].ndim))
    return call[0].amax(axes, keepdim=bool(call.attributes.get("keepdims", 1)))


def _reshape(call: Call) -> Tensor:
    target = [call[0].shape[place] if size == 0 else size for place, size in enumerate(call.integers[1])]
    # A model for one sample is trained on many.
    return call[0].reshape(len(call[0]), *target[1:])


def _pad(call: Call) -> Tensor:
    pads, axes = call.numbers("pads", 1), call[0].ndim
    if call.attributes.get("mode", "constant") != "constant" or len(pads) != 2 * axes:
        raise TrainError("only constant padding of all axes is known here")
    value = call.optional(2)
    return functional.pad(call[0], [pads[side * axes + axis] for axis in reversed(range(axes)) for side in range(2)],
                          value=0.0 if value is None else value.item())


def _squeeze(call: Call) -> Tensor:
    axes = call.numbers("axes", 1) or [place for place, size in enumerate(call[0].shape) if size == 1 and place]
    return call[0].squeeze(axes)


def _unsqueeze(call: Call) -> Tensor:
    x, axes = call[0], call.numbers("axes", 1)
    for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


#: What each operator makes of its inputs.
OPERATORS: dict[str, Callable[[Call], Tensor | tuple[Tensor, ...]]] = {
    **MOVING,
    "Abs": lambda call: call[0].abs(),
    "Add": lambda call: call[0] + call[1],
    "AveragePool": _average_pool,
    "BatchNormalization": _norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "DequantizeLinear": lambda call: dequantize(call[0], call[1], _zero_point(call), call.attributes.get("axis", 1)),
    "Div": lambda call: call[0] / call[1],
    "Dropout": lambda call: call[0],
    "Elu": lambda call: functional.elu(call[0], call.attributes.get("alpha", 1.0)),
    "Erf": lambda call: torch.erf(call[0]),
    "Exp": lambda call: torch.exp(call[0]),
    "Flatten": lambda call: call[0].flatten(call.attributes.get("axis", 1)),
    "Gelu": lambda call: functional.gelu(call[0], approximate=call.attributes.get("approximate", "none")),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda call: call[0].mean(list(range(2, call[0].ndim)), keepdim=True),
    "GlobalMaxPool": lambda call: call[0].amax(list(range(2, call[0].ndim)), keepdim=True),
    "Greater": lambda call: (call[0] > call[1]).float(),
    "GreaterOrEqual": lambda call: (call[0] >= call[1]).float(),
    "GroupNormalization": _group_norm,
    "HardSigmoid": lambda call: (call.attributes.get("alpha", 0.2) * call[0]
                                 + call.attributes.get("beta", 0.5)).clamp(0, 1),
    "HardSwish": lambda call: functional.hardswish(call[0]),
    "Identity": lambda call: call[0],
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda call: functional.leaky_relu(call[0], call.attributes.get("alpha", 0.01)),
    "Less": lambda call: (call[0] < call[1]).float(),
    "LessOrEqual": lambda call: (call[0] <= call[1]).float(),
    "MatMul": lambda call: call[0] @ call[1],
    "MaxPool": _max_pool,
    "Mish": lambda call: functional.mish(call[0]),
    "Mul": lambda call: call[0] * call[1],
    "Neg": lambda call: -call[0],
    "PRelu": lambda call: torch.where(call[0] < 0, call[0] * call[1], call[0]),
    "Pad": _pad,
    "Pow": lambda call: call[0] ** call[1],
    "QuantizeLinear": lambda call: quantize(call[0], call[1], _zero_point(call), call.attributes.get("axis", 1),
                                            call.limits),
    "RMSNormalization": _rms_norm,
    "ReduceMax": _reduce_max,
    "ReduceMean": _reduce_mean,
    "Relu": lambda call: functional.relu(call[0]),
    "Reshape": _reshape,
    "Sigmoid": lambda call: torch.sigmoid(call[0]),
    "Sign": lambda call: sign(call[0], call.estimator),
    "Softmax": lambda call: functional.softmax(call[0], call.attributes.get("axis", -1)),
    "Softplus": lambda call: functional.softplus(call[0]),
    "Sqrt": lambda call: torch.sqrt(call[0]),
    "Squeeze": _squeeze,
    "Sub": lambda call: call[0] - call[1],
    "Tanh": lambda call: torch.tanh(call[0]),
    "Transpose": lambda call: call[0].permute(call.attributes.get("perm", list(reversed(range(call[0].ndim))))),
    "Unsqueeze": _unsqueeze,
}
