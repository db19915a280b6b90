"""Normalisations over pixels, as the layers that make them.

InstanceNormalization takes mean and variance of all pixels of a channel, GroupNormalization of a group of channels. A
LayerNormalization or RMSNormalization of several axes of (N, C, ...) takes them of a channel, or of all channels; an
RMSNormalization has no mean.

Each step is a layer of the machine, and samples tell the scale of its result: averages of pixels; averages of a group's
channels, as 1x1 convolutions; a difference; its square, as a table, with averages again; the inverse root, as a table;
and a product.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto, helper

from gen.quantize.rewriting import Rewriting

__all__ = ["PixelNorms"]


@dataclass(frozen=True)
class _Norm:
    """``source`` normalised, in ``groups`` of its channels, with a scale and a bias for each channel, (C,), or for each
    value, (C, ...). ``centred``: the mean is subtracted.
    """

    name: str
    source: str
    result: str
    groups: int
    epsilon: float
    scale: np.ndarray
    bias: np.ndarray
    centred: bool = True


class PixelNorms(Rewriting):
    """Replaces normalisations over pixels, of tensors with 3 or 4 axes and a known number of channels.

    PyTorch writes a GroupNormalization as an InstanceNormalization between two Reshapes, with a Mul for each channel
    after them.
    """

    OPERATORS = frozenset(("GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization",
                           "SimplifiedLayerNormalization"))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if (norm := self._norm(node)) is not None:
            yield from self._steps(norm)

    def _norm(self, node: NodeProto) -> _Norm | None:
        if node.op_type in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
            return self._of_axes(node)
        attributes = self._attributes(node)
        scale, bias = map(self._number, node.input[1:3])
        source, result = node.input[0], node.output[0]
        groups = attributes.get("num_groups", 0) or len(scale if scale is not None else ())
        if node.op_type == "InstanceNormalization":
            source, result = self._grouped(source, result)
        shape = self._shapes.get(source, [])
        if scale is None or bias is None or len(shape) not in (3, 4):
            return None
        if not shape[1] or shape[1] % groups:
            return None
        scale, bias = (np.repeat(numbers, shape[1] // len(numbers)).astype(np.float32) for numbers in (scale, bias))
        return self._scaled(_Norm(node.name, source, result, groups, attributes.get("epsilon", 1e-5), scale, bias))

    def _of_axes(self, node: NodeProto) -> _Norm | None:
        """Of all axes but those of the samples, or of the samples and the channels; of the last axis it is a layer."""
        attributes, shape = self._attributes(node), self._shapes.get(node.input[0], [])
        axis = attributes.get("axis", -1) % len(shape) if shape else 0
        values = shape[1:]
        if (len(shape) not in (3, 4) or not 1 <= axis <= 2 or axis == len(shape) - 1 or len(node.output) > 1
                or not all(values)):
            return None
        given, added = self._number(node.input[1]), np.zeros(1) if len(node.input) < 3 else self._number(node.input[2])
        if given is None or added is None:
            return None
        scale, bias = (np.broadcast_to(number, values).astype(np.float32) for number in (given, added))
        if all(_is_of_channels(number) for number in (scale, bias)):
            scale, bias = (number.reshape(values[0], -1)[:, 0] for number in (scale, bias))
        return _Norm(node.name, node.input[0], node.output[0], 1 if axis == 1 else values[0],
                     attributes.get("epsilon", 1e-5), scale, bias, node.op_type == "LayerNormalization")

    def _grouped(self, source: str, result: str) -> tuple[str, str]:
        """Input and result of what a node normalises between two Reshapes, or of the node alone."""
        before, readers = self._made(source, "Reshape"), self._readers.get(result, [])
        if before is None or [node.op_type for node in readers] != ["Reshape"] or result in self._outputs:
            return source, result
        outer, ends = before.input[0], readers[0].output[0]
        whole, back, grouped = (self._index.sizes.get(name, []) for name in (outer, ends, source))
        same = whole == back and all(whole) and len(grouped) == 3 and whole[:1] == grouped[:1]
        return (outer, ends) if same else (source, result)

    def _scaled(self, norm: _Norm) -> _Norm:
        """With the Mul of a constant for each channel that is the only reader."""
        readers = self._readers.get(norm.result, [])
        channels = len(norm.scale)
        if [node.op_type for node in readers] != ["Mul"] or norm.bias.any() or norm.result in self._outputs:
            return norm
        number = next((self._number(name) for name in readers[0].input if name in self._constants), None)
        column = (channels, *(1 for _ in self._shapes[norm.source][2:]))
        if number is None or number.shape not in (column, (1, *column)):
            return norm
        return replace(norm, result=readers[0].output[0], scale=norm.scale * number.reshape(-1))

    def _steps(self, norm: _Norm) -> Iterator[NodeProto]:
        channels, axes = len(norm.scale), len(self._shapes[norm.source]) - 2
        column = (channels, *(1,) * axes)
        # A scale for each value comes after the product, one for each channel goes into its factor.
        scale = norm.scale if norm.scale.ndim == 1 else np.ones(channels, np.float32)
        grouped = norm.groups < channels
        members = np.repeat(np.eye(norm.groups, dtype=np.float32), channels // norm.groups, axis=1)

        def node(op: str, *inputs: str, result: str = "") -> NodeProto:
            name = result or self._name(f"{norm.name}/{op}")
            return helper.make_node(op, inputs, [name], name=self._name(f"{norm.name}/{op}_node"))

        def matrix(source: str, weights: np.ndarray) -> NodeProto:
            return node("Conv", source, self._constant(norm.name, weights.reshape(*weights.shape, *(1,) * axes)))

        def of_group(source: str) -> Iterator[NodeProto]:
            yield (mean := node("GlobalAveragePool", source))
            if grouped:
                yield matrix(mean.output[0], members * norm.groups / channels)

        source = norm.source
        if norm.centred:
            yield from (means := list(of_group(source)))
            if grouped:
                yield (mean := matrix(means[-1].output[0], members.T))
                means.append(mean)
            yield (less := node("Sub", source, means[-1].output[0]))
            source = less.output[0]
        yield (square := node("Mul", source, source))
        yield from (variances := list(of_group(square.output[0])))
        epsilon = self._constant(norm.name, np.array(norm.epsilon, np.float32))
        yield (sum_ := node("Add", variances[-1].output[0], epsilon))
        yield (root := node("Sqrt", sum_.output[0]))
        yield (factor := node("Reciprocal", root.output[0]))
        if grouped:
            yield (factor := matrix(factor.output[0], members.T * scale[:, None]))
        elif (scale != 1).any():
            yield (factor := node("Mul", factor.output[0], self._constant(norm.name, scale.reshape(column))))
        after = [(op, number.reshape(number.shape if number.ndim > 1 else column))
                 for op, number, wanted in (("Mul", norm.scale, norm.scale.ndim > 1),
                                            ("Add", norm.bias, norm.bias.any())) if wanted]
        yield (made := node("Mul", source, factor.output[0], result="" if after else norm.result))
        for place, (op, number) in enumerate(after, 1):
            yield (made := node(op, made.output[0], self._constant(norm.name, number),
                                result=norm.result if place == len(after) else ""))


def _is_of_channels(number: np.ndarray) -> bool:
    """Whether all values of each channel, (C, ...), have the same."""
    rows = number.reshape(len(number), -1)
    return bool((rows == rows[:, :1]).all())
