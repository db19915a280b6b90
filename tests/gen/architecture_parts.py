"""Parts of today's architectures as exporters write them, each a small float model.

Each is (model, multiplications): the latter of the convolutions and matrix products with weights, for one sample, all
of which belong on the accelerator.
"""

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np
import onnx

from tests.gen.float_models import FloatBuilder

__all__ = ["PARTS", "Part"]

Rng = np.random.Generator
Part = Callable[[Rng], tuple[onnx.ModelProto, int]]

_WIDTH, _HEADS, _CLASSES = 32, 2, 10


class _Parts(FloatBuilder):
    """Counts the multiplications of what it adds."""

    def __init__(self, rng: Rng, shape: list[int], *, opset: int = 17) -> None:
        super().__init__(rng, shape, opset=opset)
        self.products = 0

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.integers(*shape))

    def linear(self, x: str, before: int, after: int, tokens: int) -> str:
        """Of (..., before), ``tokens`` of them, as PyTorch writes a Linear of more than two dimensions."""
        self.products += tokens * before * after
        weights = self.constant(self.rng.normal(0, 1 / sqrt(before), (before, after)))
        return self.node("Add", self.constant(self.rng.normal(size=after) / 4), self.node("MatMul", x, weights))

    def gemm(self, x: str, before: int, after: int) -> str:
        self.products += before * after
        return self.node("Gemm", x, self.weights(after, before), self.constant(self.rng.normal(size=after) / 4),
                         transB=1)

    def convolution(self, x: str, before: int, after: int, kernel: int, pixels: int, **attributes: object) -> str:
        """``pixels``: of its result."""
        self.products += pixels * before * after * kernel * kernel // int(attributes.get("group", 1))  # type: ignore
        y = self.conv(x, before, after, kernel=kernel, **attributes)
        self.nodes[-1].input.append(self.constant(self.rng.normal(size=after) / 4))
        return y

    def norm_of_tokens(self, x: str) -> str:
        """Layer norm of the last axis, in the operators of opset 16 and before."""
        near = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        variance = self.node("ReduceMean", self.node("Pow", near, self.constant(np.float32(2))), axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", variance, self.constant(np.float32(1e-5))))
        scaled = self.node("Mul", self.node("Div", near, deviation),
                           self.constant(self.rng.uniform(0.5, 1.5, _WIDTH)))
        return self.node("Add", scaled, self.constant(self.rng.normal(size=_WIDTH) / 4))

    def layer_norm(self, x: str) -> str:
        return self.node("LayerNormalization", x, self.constant(self.rng.uniform(0.5, 1.5, _WIDTH)),
                         self.constant(self.rng.normal(size=_WIDTH) / 4), axis=-1)

    def gelu(self, x: str) -> str:
        """By Erf."""
        error = self.node("Erf", self.node("Div", x, self.constant(np.float32(sqrt(2)))))
        return self.node("Mul", self.node("Mul", x, self.node("Add", error, self.constant(np.float32(1)))),
                         self.constant(np.float32(0.5)))

    def perceptron(self, x: str, tokens: int) -> str:
        return self.linear(self.gelu(self.linear(x, _WIDTH, 2 * _WIDTH, tokens)), 2 * _WIDTH, _WIDTH, tokens)

    def attention(self, x: str, tokens: int, windows: int = 1) -> str:
        """Of (windows, tokens, width): queries, keys and values by one layer, permuted to (3, B, heads, tokens, D)."""
        size = _WIDTH // _HEADS
        parts = self.linear(x, _WIDTH, 3 * _WIDTH, windows * tokens)
        parts = self.node("Transpose", self.reshape(parts, windows, tokens, 3, _HEADS, size), perm=[2, 0, 3, 1, 4])
        query, key, value = (self.node("Gather", parts, self.constant(np.int64(number)), axis=0)
                             for number in range(3))
        query = self.node("Mul", query, self.constant(np.float32(1 / sqrt(size))))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=[0, 1, 3, 2]))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        mixed = self.reshape(self.node("Transpose", mixed, perm=[0, 2, 1, 3]), windows, tokens, _WIDTH)
        return self.linear(mixed, _WIDTH, _WIDTH, windows * tokens)

    def patches(self, size: int) -> str:
        """Of the image ``x``, 32x32, to (1, tokens, width)."""
        side = 32 // size
        y = self.convolution("x", 3, _WIDTH, size, side * side, strides=[size, size])
        return self.node("Transpose", self.reshape(y, 1, _WIDTH, side * side), perm=[0, 2, 1])

    def block(self, x: str, tokens: int, norm: Callable[[str], str]) -> str:
        """Of a transformer that norms first."""
        x = self.node("Add", x, self.attention(norm(x), tokens))
        return self.node("Add", x, self.perceptron(norm(x), tokens))

    def done(self, output: str) -> tuple[onnx.ModelProto, int]:
        return self.model(output), self.products


def transformer(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """Patches, a token of the class, two blocks, scores of that token: as the older exporter writes it."""
    b = _Parts(rng, [1, 3, 32, 32], opset=16)
    y = b.node("Concat", b.constant(rng.normal(size=(1, 1, _WIDTH))), b.patches(8), axis=1)
    y = b.node("Add", y, b.constant(rng.normal(size=(1, 17, _WIDTH))))
    for _ in range(2):
        y = b.block(y, 17, b.norm_of_tokens)
    y = b.node("Gather", b.norm_of_tokens(y), b.constant(np.int64(0)), axis=1)
    return b.done(b.gemm(y, _WIDTH, _CLASSES))


def mean_of_tokens(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """Patches, a block, scores of the mean of all tokens: as the newer exporter writes it."""
    b = _Parts(rng, [1, 3, 32, 32], opset=18)
    y = b.layer_norm(b.block(b.patches(4), 64, b.layer_norm))
    return b.done(b.gemm(b.node("ReduceMean", y, b.integers(1), keepdims=0), _WIDTH, _CLASSES))


def shifted_windows(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """Channels last, rolled by two pixels, attention within 4x4 windows, rolled back: Swin's second kind of block."""
    b = _Parts(rng, [1, 3, 32, 32], opset=17)
    y = b.convolution("x", 3, _WIDTH, 4, 64, strides=[4, 4])
    image = b.node("Transpose", y, perm=[0, 2, 3, 1])

    def roll(x: str, axis: int, cut: int) -> str:
        ends = [(cut, np.iinfo(np.int64).max), (0, cut)]
        return b.node("Concat", *(b.node("Slice", x, b.integers(start), b.integers(end), b.integers(axis))
                                  for start, end in ends), axis=axis)

    y = roll(roll(b.layer_norm(image), 1, 2), 2, 2)
    y = b.node("Transpose", b.reshape(y, 1, 2, 4, 2, 4, _WIDTH), perm=[0, 1, 3, 2, 4, 5])
    y = b.attention(b.reshape(y, 4, 16, _WIDTH), 16, windows=4)
    y = b.node("Transpose", b.reshape(y, 1, 2, 2, 4, 4, _WIDTH), perm=[0, 1, 3, 2, 4, 5])
    y = roll(roll(b.reshape(y, 1, 8, 8, _WIDTH), 1, 6), 2, 6)
    y = b.node("Add", image, y)
    y = b.node("Add", y, b.perceptron(b.layer_norm(y), 64))
    y = b.node("GlobalAveragePool", b.node("Transpose", y, perm=[0, 3, 1, 2]))
    return b.done(b.gemm(b.node("Flatten", y), _WIDTH, _CLASSES))


def convolutional_norm(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """ConvNeXt's blocks: depthwise, layer norm with channels last, two linear layers with GELU, a scaled sum."""
    b = _Parts(rng, [1, 3, 32, 32], opset=17)
    x = b.convolution("x", 3, _WIDTH, 4, 64, strides=[4, 4])
    for _ in range(2):
        y = b.convolution(x, _WIDTH, _WIDTH, 7, 64, group=_WIDTH, pads=[3] * 4)
        y = b.perceptron(b.layer_norm(b.node("Transpose", y, perm=[0, 2, 3, 1])), 64)
        y = b.node("Mul", b.constant(rng.uniform(0.5, 1.5, (_WIDTH, 1, 1))),
                   b.node("Transpose", y, perm=[0, 3, 1, 2]))
        x = b.node("Add", y, x)
    return b.done(b.gemm(b.node("Flatten", b.node("GlobalAveragePool", x)), _WIDTH, _CLASSES))


def mixer(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """Layers over the tokens of each channel and over the channels of each token, in turn."""
    b = _Parts(rng, [1, 3, 32, 32], opset=17)
    y = b.patches(8)
    mixed = b.node("Transpose", b.layer_norm(y), perm=[0, 2, 1])
    mixed = b.linear(b.gelu(b.linear(mixed, 16, 8, _WIDTH)), 8, 16, _WIDTH)
    y = b.node("Add", y, b.node("Transpose", mixed, perm=[0, 2, 1]))
    y = b.node("Add", y, b.perceptron(b.layer_norm(y), 16))
    return b.done(b.gemm(b.node("ReduceMean", b.layer_norm(y), axes=[1], keepdims=0), _WIDTH, _CLASSES))


def recurrent(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """A layer for each frame, an LSTM, scores of what it gives at the end."""
    b = _Parts(rng, [1, 12, 8])
    frames = b.node("Relu", b.linear("x", 8, 16, 12))
    gates = [b.constant(rng.normal(0, 0.3, shape)) for shape in ((1, 4 * _WIDTH, 16), (1, 4 * _WIDTH, _WIDTH),
                                                                 (1, 8 * _WIDTH))]
    b.nodes.append(onnx.helper.make_node(
        "LSTM", [b.node("Transpose", frames, perm=[1, 0, 2]), *gates], ["", "last"], name="lstm",
        hidden_size=_WIDTH))
    return b.done(b.gemm(b.node("Squeeze", "last", b.integers(0)), _WIDTH, _CLASSES))


def excited(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """Squeeze and excitation by ReduceMean over rows and columns, with SiLU, as timm has it."""
    b = _Parts(rng, [1, 3, 16, 16])

    def silu(x: str) -> str:
        return b.node("Mul", x, b.node("Sigmoid", x))

    y = silu(b.convolution("x", 3, _WIDTH, 3, 64, strides=[2, 2], pads=[1] * 4))
    y = silu(b.convolution(y, _WIDTH, _WIDTH, 3, 64, group=_WIDTH, pads=[1] * 4))
    gate = silu(b.convolution(b.node("ReduceMean", y, axes=[2, 3], keepdims=1), _WIDTH, 8, 1, 1))
    y = b.node("Mul", y, b.node("Sigmoid", b.convolution(gate, 8, _WIDTH, 1, 1)))
    y = b.convolution(y, _WIDTH, 16, 1, 64)
    return b.done(b.gemm(b.node("Flatten", b.node("GlobalAveragePool", y)), 16, _CLASSES))


PARTS: Mapping[str, Part] = {part.__name__: part for part in (
    transformer, mean_of_tokens, shifted_windows, convolutional_norm, mixer, recurrent, excited)}
