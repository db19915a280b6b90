"""Refuses what is no valid ONNX model."""

import onnx

from gen.ir.errors import GraphError
from gen.onnx.light import is_large, light
from gen.onnx.passes.report import sentence, title

__all__ = ["check"]


def check(model: onnx.ModelProto) -> onnx.ModelProto:
    """By onnx's own rules, and that nodes are sorted."""
    # Older files must list initializers among the inputs, which writers forget and nobody needs.
    model.ir_version = max(model.ir_version, 4)
    _check_order(model.graph)
    try:
        onnx.checker.check_model(_empty(model))
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise GraphError(sentence(error)) from None
    if not model.graph.output:
        raise GraphError("the model has no outputs; name at least one")
    return model


def _empty(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, whose large initializers have no elements: who reads them says whether they fit their shapes."""
    result = light(model)
    for tensor, whole in zip(result.graph.initializer, model.graph.initializer, strict=True):
        if is_large(whole):
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0], raw_data=b""))
    return result


def _check_order(graph: onnx.GraphProto) -> None:
    """Every name that a node reads is that of a constant, of an input or of something made before."""
    known = {value.name for value in (*graph.input, *graph.initializer)}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    made = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                what = "made only by a later node; sort the nodes" if name in made else "made nowhere"
                raise GraphError(f"{title(node)}: its input {name} is {what}")
        known.update(node.output)
