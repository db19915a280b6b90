"""Networks that others have quantised, as the float networks that their weights stand for."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["as_float"]


def as_float(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which plain operators stand between QuantizeLinear and DequantizeLinear: its weights are
    numbers, its inputs, outputs and activations are not rounded.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph, nodes, names = result.graph, [], dict[str, str]()
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            numbers = _numbers(axis, *(numpy_helper.to_array(constants[name]) for name in node.input))
            graph.initializer.append(numpy_helper.from_array(numbers, node.output[0]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            names[node.output[0]] = node.input[0]
        else:
            nodes.append(node)
    nodes += [helper.make_node("Identity", [names[value.name]], [value.name])
              for value in graph.output if value.name in names]
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    return result


def _numbers(axis: int, integers: np.ndarray, scale: np.ndarray, point: np.ndarray | None = None
             ) -> np.ndarray:
    column = [1] * integers.ndim
    if scale.size > 1:
        column[axis] = -1
    zero = np.zeros(1, np.float32) if point is None else point.astype(np.float32)
    zero = zero.reshape(column if zero.size > 1 else [1] * integers.ndim)
    return ((integers.astype(np.float32) - zero) * scale.reshape(column)).astype(np.float32)
