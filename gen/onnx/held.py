"""What constants of a model that is not taken apart yet hold."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["array_of", "constant_of", "constants_of", "held_by", "small_constants", "zeros_of"]

#: Operators that give zeros for zeros, whatever their other inputs are.
_KEEP_ZEROS = ("Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose",
               "Unsqueeze")


def constant_of(graph: onnx.GraphProto, name: str) -> np.ndarray | None:
    """An initializer, or what a Constant node holds; None for others, and for damaged ones."""
    return constants_of(graph)(name)


def constants_of(graph: onnx.GraphProto) -> Callable[[str], np.ndarray | None]:
    """`constant_of` for many names: the graph is gone through once."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    nodes = {name: node for node in graph.node if node.op_type == "Constant" for name in node.output}

    def found(name: str) -> np.ndarray | None:
        if name in tensors:
            return array_of(tensors[name])
        return held_by(nodes[name]) if name in nodes else None

    return found


def small_constants(graph: onnx.GraphProto, most: int) -> dict[str, np.ndarray]:
    """As `constant_of`, all those of ``most`` elements."""
    arrays = {tensor.name: array_of(tensor) for tensor in graph.initializer
              if np.prod(tensor.dims, dtype=np.int64) <= most}
    arrays |= {node.output[0]: held_by(node) for node in graph.node if node.op_type == "Constant"}
    return {name: array for name, array in arrays.items() if array is not None and array.size <= most}


def zeros_of(graph: onnx.GraphProto) -> set[str]:
    """Values that are zeros whatever the model is given, though their shape may depend on that: first states of
    recurrent layers.
    """
    zeros = {name for name, array in small_constants(graph, 1 << 16).items() if not array.any()}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            made = next((array_of(attribute.t) for attribute in node.attribute if attribute.name == "value"), None)
            still = made is None or not made.any()
        else:
            still = bool(node.input) and (node.op_type in _KEEP_ZEROS and node.input[0] in zeros
                                          or node.op_type == "Concat" and all(name in zeros for name in node.input))
        if still:
            zeros.update(name for name in node.output if name)
    return zeros


def held_by(node: onnx.NodeProto) -> np.ndarray | None:
    """What a Constant node holds."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return array_of(attribute.t)
        if attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            number = np.int64 if "int" in attribute.name else np.float32
            return np.array(helper.get_attribute_value(attribute), number)
    return None


def array_of(tensor: onnx.TensorProto) -> np.ndarray | None:
    """What a tensor holds; None for a damaged one."""
    try:
        return numpy_helper.to_array(tensor)
    except Exception:  # a damaged tensor makes it raise anything; who reads it says so
        return None
