"""Concats of tensors that differ in size, in front of layers: a layer reads all of one with one scale.

A tensor that is small beside the largest one would be left a few steps. It is multiplied by a power of two first, and
the weights that read it are divided by that, so the function stays the same to the bit. As with channels across layers
(`gen.quantize.equalize`), the factor is the geometric mean of what activations and weights ask for: what is gained in
steps of the activation is lost in those of the weights, as a layer's output channel has one scale for all of them.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.edited import EditedGraph
from gen.quantize.options import QuantizeOptions
from gen.quantize.plan import Plan
from gen.quantize.ranges import Distribution
from gen.quantize.sessions import Samples, values_of

__all__ = ["balance_joins", "kept_alike", "unlike_parts"]

#: Ranges of a Concat's inputs that differ by more than this are too far apart for one scale.
_APART = 8.0
#: Samples for the ranges.
_SAMPLES = 16
#: What commutes with a positive factor for each channel, and has one input.
_HOMOGENEOUS = ("Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity",
                "Resize")


def balance_joins(model: onnx.ModelProto, samples: Samples, options: QuantizeOptions
                  ) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Multiply small inputs of Concats, so that the parts have one range.

    Returns ``model``, or a copy of it with the products; and product -> the result of its Concat. A product gets that
    result's range, so it is written into the whole without another rounding.
    """
    found = _Joins(model, options)
    names = sorted({name for node in found.nodes for name in node.input})
    if not names:
        return model, {}
    largest = dict.fromkeys(names, 0.0)
    for values in values_of(model, names, {name: array[:_SAMPLES] for name, array in samples.items()}):
        for name in names:
            largest[name] = max(largest[name], float(np.abs(values[name]).max(initial=0)))
    if not any(_spread([largest[name] for name in node.input]) > _APART for node in found.nodes):
        return model, {}
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    changed, products = _Joins(copied, options), dict[str, str]()
    for node in changed.nodes:
        products.update(dict.fromkeys(changed.balanced(node, largest), node.output[0]))
    changed.finish()
    return copied, products


def kept_alike(model: onnx.ModelProto, ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """``ranges`` with those of inputs that a Concat makes longer for an output, as keys and values of earlier tokens,
    and of these outputs alike: what comes back as an input is not rounded again.
    """
    made = dict(ranges)
    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "Concat" and node.output[0] in outputs & made.keys():
            alike = [node.output[0], *(name for name in node.input if name in inputs & made.keys())]
            both = min(made[name][0] for name in alike), max(made[name][1] for name in alike)
            made |= dict.fromkeys(alike, both)
    return made


def unlike_parts(model: onnx.ModelProto, plan: Plan, found: Mapping[str, Distribution]) -> tuple[str, ...]:
    """A line for people on each Concat that has one scale for inputs whose ranges are far apart."""
    lines = []
    for node in model.graph.node:
        if node.op_type != "Concat" or node.output[0] not in plan.tensors:
            continue
        roots = [plan.like[name][0] if name in plan.like else name for name in node.input]
        sizes = [found[name].largest for name in roots if name in found and found[name].largest]
        if _spread(sizes) > _APART:
            lines.append(
                f"node {node.name} (Concat): joins values up to {max(sizes):.3g} and up to {min(sizes):.3g}, which "
                f"layers read with one scale: of 255 steps the small ones have {round(255 * min(sizes) / max(sizes))}; "
                "train with values of one size there, as batch norms make them, or take a sum of two layers")
    return tuple(lines)


def _spread(sizes: Iterable[float]) -> float:
    """The largest of what is not zero over the smallest."""
    used = [size for size in sizes if size]
    return max(used) / min(used) if used and np.isfinite(used).all() else 1.0


class _Joins:
    """The Concats of channels in a model that layers read, at once or through what commutes with a factor."""

    def __init__(self, model: onnx.ModelProto, options: QuantizeOptions) -> None:
        self._index, self._options = EditedGraph(model, model.graph), options
        self._constants, self._shapes = self._index.constants, self._index.shapes
        self.nodes = [node for node in model.graph.node if self._joins_channels(node) and self._layers(node)]

    def _joins_channels(self, node: NodeProto) -> bool:
        if node.op_type != "Concat" or node.name in self._options.keep_float:
            return False
        rank = len(self._shapes.get(node.output[0], ()))
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        return (rank > 2 and axis % rank == 1 and self._constants.keys().isdisjoint(node.input)
                and len(set(node.input)) == len(node.input)
                and all(len(self._shapes.get(name, ())) == rank and self._shapes[name][1] for name in node.input))

    def _layers(self, node: NodeProto) -> list[NodeProto]:
        """The Convs that read a Concat, and nothing else does; none if there are others."""
        found, waiting = list[NodeProto](), [node.output[0]]
        while waiting:
            name = waiting.pop()
            if name in self._index.outputs:
                return []
            for reader in self._index.reading(name):
                if reader.op_type in _HOMOGENEOUS:
                    waiting.append(reader.output[0])
                elif self._is_layer(reader):
                    found.append(reader)
                else:
                    return []
        return found

    def _is_layer(self, node: NodeProto) -> bool:
        return (node.op_type == "Conv" and node.name not in self._options.keep_float
                and node.input[1] in self._constants and len(self._index.reading(node.input[1])) == 1
                and next((a.i for a in node.attribute if a.name == "group"), 1) == 1)

    def finish(self) -> None:
        self._index.finish()

    def balanced(self, node: NodeProto, largest: Mapping[str, float]) -> list[str]:
        """Multiplies the inputs of a Concat that are far smaller than its largest one; returns the products."""
        names, layers, products = list(node.input), self._layers(node), []
        ends = np.cumsum([0, *(self._shapes[name][1] for name in names)])
        most = max(names, key=lambda name: largest[name])
        weights = [numpy_helper.to_array(self._constants[layer.input[1]]).copy() for layer in layers]
        sizes = {name: max(float(np.abs(array[:, first:last]).max(initial=0)) for array in weights)
                 for name, (first, last) in zip(names, pairwise(ends), strict=True)}
        for place, (name, (first, last)) in enumerate(zip(names, pairwise(ends), strict=True)):
            ratio = largest[most] / largest[name] if largest[name] else 1.0
            wanted = np.sqrt(ratio * (sizes[name] or 1) / (sizes[most] or 1))
            factor = 2.0 ** np.rint(np.log2(np.clip(wanted, 1, ratio)))
            if ratio > _APART and factor > 1:
                products.append(self._multiply(node, place, float(factor)))
                for array in weights:
                    array[:, first:last] /= factor
        for layer, array in zip(layers, weights, strict=True):
            tensor = self._constants[layer.input[1]]
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        return products

    def _multiply(self, node: NodeProto, place: int, factor: float) -> str:
        """Puts a Mul in front of an input; returns its result."""
        graph, source = self._index.graph, node.input[place]
        result = self._index.name(f"{node.name}/scaled/{place}")
        number = self._index.constant(f"{result}/factor", np.array(factor, np.float32))
        graph.value_info.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, None))
        known = next(value for value in (*graph.value_info, *graph.input) if value.name == source)
        graph.value_info[-1].type.CopyFrom(known.type)
        self._index.connect(node, place, result)
        self._index.put(node, [helper.make_node("Mul", [source, number], [result], name=result), node])
        return result
