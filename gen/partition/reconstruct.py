"""Quantisation where the lack of it would leave layers to the processor.

A layer of the accelerator ends in a quantised tensor. Where the processor reads its result as it is, the layer could
not be on the accelerator, nor whatever else reads it. So the result is quantised, and dequantised for the processor:

* *Several paths*: the model quantises the result for other readers. All get that one.
* *One path*: what reads the result only moves values to a QuantizeLinear. Quantising in front of the move is the same.
* Otherwise, where samples of the model's inputs say so, to the range that the result has on them. Not a Concat: the
  processor joins what is quantised already, each part in its own scale.

This changes what the processor gets by rounding alone, and in the last case by clipping.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from gen.onnx.names import unique
from gen.onnx.passes.hoist_quantisation import MOVING, common, single_numbers

__all__ = ["Ranges", "range_constants", "reconstruct"]

#: Model and values in it -> lowest and highest number that is to be represented of each; zero is among them.
Ranges = Callable[[onnx.ModelProto, Sequence[str]], Mapping[str, tuple[float, float]]]
_INT8 = np.iinfo(np.int8)


def reconstruct(model: onnx.ModelProto, unquantised: Iterable[str], ranges: Ranges | None = None) -> dict[str, str]:
    """Quantises what can be of the values ``unquantised`` in ``model``. Returns the names that those have now, as their
    own are those of what is dequantised.
    """
    graph = model.graph
    taken = {n for node in graph.node for n in (node.name, *node.input, *node.output)}
    taken |= {tensor.name for tensor in graph.initializer}
    ends = _quantisations(graph)
    found = {name: like.input[1:] for name in unquantised if (like := ends.get(name)) is not None}
    joined = {name for node in graph.node if node.op_type == "Concat" for name in node.output}
    unknown = [name for name in unquantised if name not in found and name not in joined]
    if ranges is not None and unknown:
        for name, (low, high) in ranges(model, unknown).items():
            found[name] = range_constants(graph, name, low, high, taken)
    added: dict[str, list[NodeProto]] = {}      # value -> its pair of nodes
    for name, numbers in found.items():
        names = {what: unique(f"{name}/{what}", taken) for what in ("unquantised", "quantized", "dequantized")}
        taken.update(names.values())
        added[name] = [
            helper.make_node("QuantizeLinear", [names["unquantised"], *numbers], [names["quantized"]],
                             name=names["quantized"]),
            helper.make_node("DequantizeLinear", [names["quantized"], *numbers], [name], name=names["dequantized"])]
    _insert(graph, added)
    return {name: pair[0].input[0] for name, pair in added.items()}


def _quantisations(graph: onnx.GraphProto) -> Mapping[str, NodeProto | None]:
    """The QuantizeLinear of ONNX, with one scale, that each value leads to, at once or after nodes that only move it.

    One that reads the value itself is enough; those after moves have to be alike, and all that it leads to.
    """
    single = single_numbers(graph)
    found: dict[str, NodeProto | None] = {}
    #: Value -> for each reader what that leads to.
    ends: dict[str, list[NodeProto | None]] = defaultdict(list, {value.name: [None] for value in graph.output})

    def end_of(name: str) -> NodeProto | None:
        direct = [end for end in ends[name] if end is not None and end.input[0] == name]
        return direct[-1] if direct else common(ends[name])

    for node in reversed(graph.node):
        found.update((name, end_of(name)) for name in node.output)
        end = None
        if node.op_type == "QuantizeLinear" and not node.domain:
            plain = single.issuperset(filter(None, node.input[1:])) and all(a.name == "axis" for a in node.attribute)
            end = node if plain else None
        elif node.op_type in MOVING:
            end = found[node.output[0]]
        for place, name in enumerate(node.input):
            ends[name].append(end if place == 0 else None)
    return found


def range_constants(graph: onnx.GraphProto, name: str, low: float, high: float, taken: set[str]) -> list[str]:
    """Scale and zero point of int8 for a range, as initializers."""
    scale = np.float32((high - low) / (_INT8.max - _INT8.min)) or np.float32(1)
    point = np.clip(np.rint(_INT8.min - low / scale), _INT8.min, _INT8.max).astype(np.int8)
    names = [unique(f"{name}/{what}", taken) for what in ("scale", "zero_point")]
    taken.update(names)
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), n)
                             for array, n in zip((scale, point), names, strict=True))
    return names


def _insert(graph: onnx.GraphProto, added: Mapping[str, list[NodeProto]]) -> None:
    """Each pair after the node whose result it quantises, which gives up its name for that of the pair's."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in added:
                node.output[place] = added[name][0].input[0]
                nodes += added[name]
    del graph.node[:]
    # A scale may be that of a Constant after what reads it now.
    graph.node.extend(sorted(nodes, key=lambda node: node.op_type != "Constant"))
