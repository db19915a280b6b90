"""Inputs whose first axis is not that of the samples."""

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gen.onnx.names import unique

__all__ = ["whole_inputs"]

#: The first opset whose Squeeze takes its axes as an input.
_AXES_AS_INPUT = 13


def whole_inputs(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Each of these inputs gets an axis of samples in front of its own, which are all of one sample.

    Such are states of recurrent layers, (layers, batch, hidden), and inputs of models that know of no samples. Their
    axes that are called as the samples of other inputs are have one of them.
    """
    graph, opset = model.graph, max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    samples = {value.type.tensor_type.shape.dim[0].dim_param for value in inputs
               if value.name not in names and value.type.tensor_type.shape.dim} - {""}
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | constants
    added = []
    for value in inputs:
        if value.name not in names:
            continue
        inner = unique(f"{value.name}/whole", taken)
        taken.add(inner)
        for node in graph.node:
            for place, name in enumerate(node.input):
                if name == value.name:
                    node.input[place] = inner
        dims = value.type.tensor_type.shape.dim
        own = [1 if dim.dim_param in samples else dim.dim_value or dim.dim_param for dim in dims]
        del dims[:]
        for size in ("samples", *own):
            dims.add(**({"dim_param": size} if isinstance(size, str) else {"dim_value": size}))
        if opset >= _AXES_AS_INPUT:
            axes = unique(f"{inner}/axes", taken)
            taken.add(axes)
            graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), axes))
            added.append(helper.make_node("Squeeze", [value.name, axes], [inner], name=inner))
        else:
            added.append(helper.make_node("Squeeze", [value.name], [inner], name=inner, axes=[0]))
    for node in reversed(added):
        graph.node.insert(0, node)
    return model
