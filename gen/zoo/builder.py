"""A float ONNX model with seeded weights, made node by node."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper

from gen.onnx.runtime import RuntimeModel

__all__ = ["Builder", "Tensor", "floats", "pictures"]

#: Batch norms are of opset 15, the newest operator here; ONNX 1.12 (IR 8) brought opset 17.
_OPSET, _IR_VERSION = 17, 8
#: Statistics are measured on so many pixels of pictures, and on no more of small pictures than these.
_PIXELS, _MOST = 100_000, 32
#: A channel's statistics count as much as so many values of what all channels have in common.
_PRIOR = 8.0


def pictures(rng: np.random.Generator, count: int, shape: tuple[int, int, int]) -> np.ndarray:
    """``count`` pictures (C, H, W) of values in 0..1: noise at several scales, so that neighbours are alike."""
    channels, height, width = shape
    total = np.zeros((count, *shape), np.float32)
    scales = (32, 8, 2, 1)
    for scale in scales:
        coarse = rng.random((count, channels, -(-height // scale), -(-width // scale)), np.float32)
        total += coarse.repeat(scale, axis=2).repeat(scale, axis=3)[..., :height, :width]
    # The mean of four uniform numbers, spread to the range of one.
    return np.clip(0.5 + (total / len(scales) - 0.5) * np.float32(2.0), 0, 1)


def floats(values: ArrayLike) -> np.ndarray:
    """A constant of the model."""
    return np.array(values, np.float32)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tensor:
    """A value of the model, and what it is for the builder's pictures: (N, C, H, W), (N, C) or tokens (N, T, C)."""

    name: str
    sample: np.ndarray

    @property
    def channels(self) -> int:
        return self.sample.shape[_channel_axis(self.sample)]


_Inputs = Sequence[Tensor | np.ndarray]


class Builder:
    """Every node is run on seeded pictures as it is added, so what follows it knows its shape and its values.

    Weights have the standard deviation sqrt(2 / fan-in) of He et al. (2015) and Laplace's distribution: like trained
    ones, many are near zero and a few are large. Batch norms have the statistics of their input, and the weights and
    biases of other layers are chosen by them, so that values keep a variance of about one, in every channel and however
    many layers are in front.
    """

    def __init__(self, *, name: str, seed: int) -> None:
        self.model = helper.make_model(
            helper.make_graph([], name, [], []), ir_version=_IR_VERSION, producer_name="npugen",
            opset_imports=[helper.make_opsetid("", _OPSET)])
        self._graph, self._rng = self.model.graph, np.random.default_rng(seed)
        #: Weights and multiply-accumulates of convolutions and matrix products, biases left out.
        self.weights = self.macs = 0
        self._samples = 0

    def image(self, shape: tuple[int, int, int], fewest: int) -> Tensor:
        """The model's input, pixels of 0..1; statistics are measured on ``fewest`` pictures or more."""
        self._graph.input.append(helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, (1, *shape)))
        self._samples = min(max(_PIXELS // prod(shape[1:]), fewest), _MOST)
        return Tensor(name="image", sample=pictures(self._rng, self._samples, shape))

    def node(self, op: str, *inputs: Tensor | np.ndarray, name: str, **attributes: Any) -> Tensor:
        """An operator of one output, which has the node's name. Arrays become initializers."""
        node = self._make(op, inputs, name, attributes)
        return self._add(node, inputs, _run(node, inputs))

    def conv(self, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1, groups: int = 1,
             signs: bool = False) -> Tensor:
        """A convolution that pads so that only its stride makes the result smaller; without bias, for a batch norm.

        ``signs``: its weights are plus or minus one number in each channel.
        """
        weights = self._drawn(channels, x.channels // groups, kernel, kernel)
        if signs:
            weights = np.copysign(np.abs(weights).mean(axis=(1, 2, 3), keepdims=True), weights)
        return self._counted(self.node("Conv", x, weights, name=name, **_windows(kernel, stride, groups)), weights)

    def biased_conv(self, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1,
                    pad: int | None = None, groups: int = 1) -> Tensor:
        """A convolution with a bias; ``pad`` on all sides, by default as `conv`."""
        weights = self._drawn(channels, x.channels // groups, kernel, kernel)
        return self._biased("Conv", x, weights, name, _windows(kernel, stride, groups, pad))

    def dense(self, x: Tensor, outputs: int, *, name: str) -> Tensor:
        """A fully connected layer that reads all values of ``x``."""
        if x.sample.ndim > 2:
            x = self.node("Flatten", x, name=f"{name}.flatten")
        return self._biased("Gemm", x, self._drawn(outputs, x.channels), name, {"transB": 1})

    def linear(self, x: Tensor, outputs: int, *, name: str, bias: bool = True, spread: ArrayLike = 1) -> Tensor:
        """A fully connected layer of each token; a ``bias`` is a node of its own, as exporters write it.

        ``spread``: the standard deviation of the results, or that of each.
        """
        weights = np.ascontiguousarray(self._drawn(outputs, x.channels).T)
        node = self._make("MatMul", (x, weights), name, {})
        result = _run(node, (x, weights))
        gain, added = self._fitted(result)
        gain, added = gain * floats(spread), added * floats(spread)
        weights *= gain
        product = self._counted(self._add(node, (x, weights), result * gain), weights)
        return self.node("Add", product, added, name=f"{name}.bias") if bias else product

    def product(self, a: Tensor, b: Tensor, *, name: str) -> Tensor:
        """The matrix product of two activations."""
        result = self.node("MatMul", a, b, name=name)
        self.macs += result.sample.size // self._samples * a.sample.shape[-1]
        return result

    def classify(self, x: Tensor, classes: int) -> None:
        """The end of a network: a score of each class from the averages of the channels."""
        self.output(self.dense(self.node("GlobalAveragePool", x, name="average"), classes, name="fc"))

    def norm(self, x: Tensor) -> Tensor:
        """A batch norm with the statistics of ``x``."""
        mean, variance = _moments(x.sample)
        parameters = self.gains(x.channels), *map(floats, (self._beta(x.channels), mean, variance))
        return self.node("BatchNormalization", x, *parameters, name=f"{x.name}.bn")

    def layer_norm(self, x: Tensor, *, name: str, epsilon: float = 1e-6) -> Tensor:
        """Over the last axis."""
        channels = x.sample.shape[-1]
        parameters = self.gains(channels), floats(self._beta(channels))
        return self.node("LayerNormalization", x, *parameters, name=name, axis=-1, epsilon=epsilon)

    def relu(self, x: Tensor) -> Tensor:
        return self.node("Relu", x, name=f"{x.name}.relu")

    def relu6(self, x: Tensor) -> Tensor:
        return self.node("Clip", x, floats(0), floats(6), name=f"{x.name}.relu6")

    def leaky(self, x: Tensor) -> Tensor:
        """With the slope 0.1 of Darknet."""
        return self.node("LeakyRelu", x, name=f"{x.name}.leaky", alpha=0.1)

    def hard_swish(self, x: Tensor) -> Tensor:
        return self.node("HardSwish", x, name=f"{x.name}.swish")

    def silu(self, x: Tensor) -> Tensor:
        return self.node("Mul", x, self.node("Sigmoid", x, name=f"{x.name}.sigmoid"), name=f"{x.name}.silu")

    def gelu(self, x: Tensor) -> Tensor:
        """By the error function, as exporters write it."""
        part = self.node("Div", x, floats(np.sqrt(2)), name=f"{x.name}.part")
        part = self.node("Add", self.node("Erf", part, name=f"{x.name}.erf"), floats(1), name=f"{x.name}.chance")
        return self.node("Mul", self.node("Mul", x, part, name=f"{x.name}.double"), floats(0.5), name=f"{x.name}.gelu")

    def reshape(self, x: Tensor, *shape: int, name: str) -> Tensor:
        """To (samples, ``shape``), or to more of them where ``shape`` has fewer values than a sample."""
        return self.node("Reshape", x, np.array([-1, *shape]), name=name)

    def transpose(self, x: Tensor, *axes: int, name: str) -> Tensor:
        return self.node("Transpose", x, name=name, perm=axes)

    def slice(self, x: Tensor, start: int, end: int, axis: int, *, name: str) -> Tensor:
        return self.node("Slice", x, *(np.array([number]) for number in (start, end, axis)), name=name)

    def prepend(self, x: Tensor, values: np.ndarray, *, name: str) -> Tensor:
        """``values`` (1, ..., C) in front of the tokens of each sample."""
        result = np.concatenate([values.repeat(len(x.sample), axis=0), x.sample], axis=1)
        inputs = (values, x)
        return self._add(self._make("Concat", inputs, name, {"axis": 1}), inputs, result)

    def gains(self, *shape: int) -> np.ndarray:
        """What a normalisation or a layer's scale multiplies by."""
        return floats(self._rng.uniform(0.5, 1.5, shape))

    def embedding(self, *shape: int) -> np.ndarray:
        """Numbers that are learnt as inputs, half as large as what they are added to."""
        return floats(self._rng.normal(0, 0.5, shape))

    def shifts(self, *shape: int) -> np.ndarray:
        """Numbers that are learnt to be added, a fifth as large as what they are added to."""
        return floats(self._rng.normal(0, 0.2, shape))

    def slopes(self, *shape: int) -> np.ndarray:
        """Of PRelu, around the 0.25 that training begins with."""
        return floats(self._rng.uniform(0.1, 0.4, shape))

    def max_pool(self, x: Tensor, kernel: int, *, name: str, stride: int = 2, pad: int = 0) -> Tensor:
        return self.node("MaxPool", x, name=name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def output(self, tensor: Tensor, *, samples: bool = True) -> None:
        """An output of the model; without ``samples`` its rows are as many as there happen to be."""
        dims = (1 if samples else None, *tensor.sample.shape[1:])
        number = helper.np_dtype_to_tensor_dtype(tensor.sample.dtype)
        self._graph.output.append(helper.make_tensor_value_info(tensor.name, number, dims))

    def _drawn(self, *shape: int) -> np.ndarray:
        """Weights (outputs, ...): two exponential numbers, one from the other, are a Laplace one of variance 2."""
        weights = self._rng.standard_exponential(shape, np.float32)
        weights -= self._rng.standard_exponential(shape, np.float32)
        weights *= np.float32(1 / np.sqrt(prod(shape[1:])))     # in place: there may be half a gigabyte of them
        return weights

    def _beta(self, channels: int) -> np.ndarray:
        return self._rng.normal(0, 0.2, channels)

    def _biased(self, op: str, x: Tensor, weights: np.ndarray, name: str, attributes: dict[str, Any]) -> Tensor:
        """A layer that does by its weights and bias what a batch norm would do after it."""
        result = _run(self._make(op, (x, weights), name, attributes), (x, weights))
        gain, bias = self._fitted(result)
        weights *= gain
        result = result * gain + bias.reshape(-1, *(1,) * (result.ndim - 2))
        inputs = (x, weights, bias)
        return self._counted(self._add(self._make(op, inputs, name, attributes), inputs, result), weights)

    def _fitted(self, result: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a layer's weights are multiplied by, and its bias."""
        mean, variance = _moments(result)
        gain = floats(1 / np.sqrt(variance.mean()))
        return gain, floats(self._beta(len(mean)) - mean * gain)

    def _counted(self, result: Tensor, weights: np.ndarray) -> Tensor:
        self.weights += weights.size
        self.macs += weights.size * (result.sample.size // (self._samples * result.channels))
        return result

    def _make(self, op: str, inputs: _Inputs, name: str, attributes: dict[str, Any]) -> onnx.NodeProto:
        names = [value.name if isinstance(value, Tensor) else f"{name}.{number}" for number, value in enumerate(inputs)]
        return helper.make_node(op, names, [name], name=name, **attributes)

    def _add(self, node: onnx.NodeProto, inputs: _Inputs, result: np.ndarray) -> Tensor:
        self._graph.node.append(node)
        for name, value in zip(node.input, inputs, strict=True):
            if isinstance(value, np.ndarray):
                self._graph.initializer.add(name=name, data_type=helper.np_dtype_to_tensor_dtype(value.dtype),
                                            dims=value.shape, raw_data=value.tobytes())
        return Tensor(name=node.name, sample=result)


def _windows(kernel: int, stride: int, groups: int, pad: int | None = None) -> dict[str, Any]:
    """Attributes of a convolution."""
    pad = kernel // 2 if pad is None else pad
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "group": groups}


def _channel_axis(sample: np.ndarray) -> int:
    return 2 if sample.ndim == 3 else 1


def _moments(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each channel, drawn to those of all channels where there are few values to measure."""
    channel = _channel_axis(sample)
    axes = tuple(axis for axis in range(sample.ndim) if axis != channel)
    values = sample.size // sample.shape[channel]
    trust = values / (values + _PRIOR)
    mean = sample.mean(axis=axes, dtype=np.float64) * trust
    variance = sample.var(axis=axes, dtype=np.float64)
    return mean, variance * trust + np.square(sample, dtype=np.float64).mean() * (1 - trust)


def _run(node: onnx.NodeProto, inputs: _Inputs) -> np.ndarray:
    """What a node alone makes of its inputs, by onnxruntime."""
    arrays = {name: value.sample if isinstance(value, Tensor) else value
              for name, value in zip(node.input, inputs, strict=True)}
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
             for name, array in arrays.items()]
    graph = helper.make_graph([node], node.name, infos, [helper.make_empty_tensor_value_info(node.output[0])])
    model = helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=[helper.make_opsetid("", _OPSET)])
    return RuntimeModel(model, optimised="all").run(arrays)[0]
