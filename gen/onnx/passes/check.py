"""Refuses what is no valid ONNX model."""

import onnx
from onnx import AttributeProto

from gen.ir.errors import GraphError
from gen.onnx.light import inferred, is_large, light
from gen.onnx.model import MICROSOFT
from gen.onnx.passes.report import nested, sentence, title

__all__ = ["check", "of_runtime"]

#: Attributes with a number or two for each spatial axis.
_OF_AXES = {"kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape"}
#: What onnxruntime has among ONNX's own operators -> the opset that it is one in, if any.
_OF_RUNTIME = {"LayerNormalization": 17, "SimplifiedLayerNormalization": None}


def check(model: onnx.ModelProto) -> onnx.ModelProto:
    """By onnx's own rules, and those that its checker leaves to others: see the functions below."""
    # Older files must list initializers among the inputs, which writers forget and nobody needs.
    model.ir_version = max(model.ir_version, 4)
    _check_versions(model)
    _check_order(model.graph)
    _check_windows(model.graph)
    _give_shapes(model)
    try:
        onnx.checker.check_model(_empty(model))
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise GraphError(sentence(error), code="invalid-model") from None
    if not model.graph.output:
        raise GraphError("the model has no outputs; name at least one", code="invalid-model")
    return model


def _give_shapes(model: onnx.ModelProto) -> None:
    """To outputs without one, which onnxruntime does not miss, the shape that follows from the nodes."""
    bare = [value for value in model.graph.output
            if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")]
    try:
        found = {value.name: value.type.tensor_type for value in inferred(model).output} if bare else {}
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):     # the checker says what is wrong
        return
    for value in bare:
        if found[value.name].HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(found[value.name].shape)


def _empty(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, whose large initializers have no elements: who reads them says whether they fit their shapes."""
    result = light(model)
    for tensor, whole in zip(result.graph.initializer, model.graph.initializer, strict=True):
        if is_large(whole):
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0], raw_data=b""))
    return of_runtime(result)


def of_runtime(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the operators that onnxruntime alone has in a domain of which onnx knows nothing."""
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    found = [node for node in nested(model.graph.node) if node.domain in ("", "ai.onnx") and node.op_type in _OF_RUNTIME
             and opset < (_OF_RUNTIME[node.op_type] or opset + 1)]
    for node in found:
        node.domain = MICROSOFT
    if found and not any(o.domain == MICROSOFT for o in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    return model


def _check_order(graph: onnx.GraphProto) -> None:
    """Every name that a node reads is that of a constant, of an input or of something made before."""
    known = {value.name for value in (*graph.input, *graph.initializer)}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    made = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                what = "made only by a later node; sort the nodes" if name in made else "made nowhere"
                raise GraphError(f"{title(node)}: its input {name} is {what}", code="invalid-model",
                                 operator=node.op_type, input=name)
        known.update(node.output)


def _check_versions(model: onnx.ModelProto) -> None:
    """A domain of operators has one version: tools differ in which of several they take."""
    known: dict[str, int] = {}
    for entry in model.opset_import:
        domain = entry.domain or "ai.onnx"
        if known.setdefault(domain, entry.version) != entry.version:
            raise GraphError(f"the model imports versions {known[domain]} and {entry.version} of the operators of "
                             f"{domain}; name one in opset_import", code="invalid-model", domain=domain)


def _check_windows(graph: onnx.GraphProto) -> None:
    """What a window has for each axis is left out or there for each axis; an empty list is neither."""
    for node in nested(graph.node):
        for attribute in node.attribute:
            if attribute.name in _OF_AXES and attribute.type == AttributeProto.INTS and not attribute.ints:
                raise GraphError(f"{title(node)}: {attribute.name} is an empty list; leave it out, or export the model "
                                 "again", code="invalid-model", node=node.name, attribute=attribute.name)
