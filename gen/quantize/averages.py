"""Average pools that do not count padding, as pools that do and a factor for each pixel.

The machine divides all windows by one number. What windows at the edge lack is a constant map, which a machine with
products multiplies with.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gen.onnx.light import inferred
from gen.onnx.names import unique
from gen.onnx.windows import WindowError, counts, resolve

__all__ = ["count_padding"]


def count_padding(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with such pools, of two axes of known sizes, in the place of others."""
    if not any(node.op_type == "AveragePool" for node in model.graph.node):
        return model
    graph, nodes = inferred(model), []
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
              for value in (*graph.input, *graph.value_info)}
    taken = {name for node in model.graph.node for name in (node.name, *node.input, *node.output)}
    for node in model.graph.node:
        nodes.append(node)
        factors, pads = _factors(node, shapes.get(node.input[0], [])) if node.op_type == "AveragePool" else (None, [])
        if factors is None:
            continue
        counted, factor = (unique(f"{node.name}/{what}", taken) for what in ("counted", "factors"))
        taken |= {counted, factor}
        model.graph.initializer.append(numpy_helper.from_array(factors, factor))
        nodes.append(helper.make_node("Mul", [counted, factor], node.output, name=counted))
        kept = [a for a in node.attribute if a.name not in (
            "pads", "auto_pad", "count_include_pad", "ceil_mode")]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("pads", pads),
                               helper.make_attribute("count_include_pad", 1)])
        node.output[0] = counted
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _factors(node: onnx.NodeProto, shape: list[int]) -> tuple[np.ndarray | None, list[int]]:
    """What each window's mean is too small by if padding is counted, float32 (H, W), and the pads; None if all count
    as many.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    attributes["auto_pad"] = attributes.get("auto_pad", b"NOTSET").decode()
    if len(shape) != 4 or not all(shape[2:]):
        return None, []
    try:
        windows = resolve(attributes, shape[2:])
    except WindowError:
        return None, []
    found = counts(attributes, shape[2:], windows)
    kernel = np.tile(attributes["kernel_shape"], 2)
    if found.min() == found.max() or (np.array(windows.pads) >= kernel).any():
        return None, []
    return (np.prod(attributes["kernel_shape"]) / found).astype(np.float32), list(windows.pads)
