"""Models of which the weights alone are integers."""

from collections.abc import Iterator

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.passes.drop_unused import drop_unused
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel
from gen.quantize.options import QuantizeError

__all__ = ["float_weights", "of_weights"]

_PAIR = ("QuantizeLinear", "DequantizeLinear")


def of_weights(graph: onnx.GraphProto) -> Iterator[NodeProto]:
    """The nodes that quantise or dequantise what depends on no input of the model."""
    known = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" or node.op_type in _PAIR and known.issuperset(filter(None, node.input)):
            known.update(node.output)
            if node.op_type in _PAIR:
                yield node


def float_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with the numbers that its weights stand for; it stays as it is.

    Raises QuantizeError for weights that onnxruntime does not dequantise.
    """
    found = list(of_weights(model.graph))
    if not found:
        return model
    folded = {node.output[0] for node in found}
    kept = [node for node in model.graph.node if not folded.intersection(node.output)]
    read = sorted(folded & ({name for node in kept for name in node.input} | {o.name for o in model.graph.output}))
    needed = {name for node in found for name in node.input}
    held = [node for node in model.graph.node if node.op_type == "Constant" and needed.intersection(node.output)]
    part = helper.make_graph([*held, *found], "weights", [],
                             [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in read])
    try:
        runtime = RuntimeModel(
            helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version),
            initializers=[tensor for tensor in model.graph.initializer if tensor.name in needed])
        arrays = runtime.run({}, read)
    except OnnxruntimeError as error:
        raise QuantizeError(f"its weights cannot be dequantised: {error}", code="not-finite") from None
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(kept)
    result.graph.initializer.extend(map(numpy_helper.from_array, arrays, read))
    return drop_unused(result)
