"""Models whose activations have 16 bits, as the float models that they were made of."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from gen.onnx.index import GraphIndex

__all__ = ["of_wide", "undo_wide"]

_NUMBERS = (np.int16, np.uint16)
_TYPES = (TensorProto.INT16, TensorProto.UINT16)


def of_wide(model: onnx.ModelProto) -> Iterator[NodeProto]:
    """The nodes that quantise activations to 16 bits, and those that dequantise them by the same scale, where nothing
    else reads them.
    """
    index = GraphIndex(model)
    constant_of = index.number
    for node in model.graph.node:
        if (node.op_type != "QuantizeLinear" or node.output[0] in index.outputs
                or constant_of(node.input[0]) is not None):
            continue
        point = constant_of(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        wanted = next((a.i for a in node.attribute if a.name == "output_dtype"), TensorProto.UNDEFINED)
        wide = wanted in _TYPES if point is None else point.dtype.type in _NUMBERS
        after = index.readers[node.output[0]]
        if wide and all(reader.op_type == "DequantizeLinear" and _same(constant_of, node, reader) for reader in after):
            yield node
            yield from after


def _same(constant_of: Callable[[str], np.ndarray | None], one: NodeProto, other: NodeProto) -> bool:
    """Whether two nodes have the same scale and zero point, those of the same name or equal constants."""
    names = [[*node.input[1:3], ""][:2] for node in (one, other)]
    values = [[constant_of(name) if name else np.array(0) for name in both] for both in names]
    return names[0] == names[1] or all(a is not None and b is not None and np.array_equal(a, b)
                                       for a, b in zip(*values, strict=True))


def undo_wide(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without them; it stays as it is."""
    undone = {node.output[0] for node in of_wide(model)}
    if not undone:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        if node.output and node.output[0] in undone:
            node.CopyFrom(helper.make_node("Identity", list(node.input)[:1], list(node.output), name=node.name))
    del result.graph.value_info[:]
    return result
