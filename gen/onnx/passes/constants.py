"""What constants of a model that is not taken apart yet hold."""

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["constant_of"]


def constant_of(graph: onnx.GraphProto, name: str) -> np.ndarray | None:
    """An initializer, or what a Constant node holds; None for others, and for damaged ones."""
    tensors = [tensor for tensor in graph.initializer if tensor.name == name]
    for node in graph.node:
        if node.op_type == "Constant" and name in node.output:
            for attribute in node.attribute:
                if attribute.name == "value_ints":
                    return np.array(attribute.ints)
                tensors += [attribute.t] if attribute.name == "value" else []
    try:
        return numpy_helper.to_array(tensors[0]) if tensors else None
    except Exception:  # a damaged tensor makes it raise anything; who reads it says so
        return None
