"""Functions that the model brings along."""

import onnx
from onnx import inliner

from gen.ir.errors import GraphError
from gen.onnx.passes.enclose import disclose
from gen.onnx.passes.report import sentence

__all__ = ["inline_functions"]


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Their nodes in place of each node that calls one; control flow as it was before `enclose`."""
    model = disclose(model)
    try:
        return inliner.inline_local_functions(model) if model.functions else model
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise GraphError(sentence(error), code="invalid-model") from None
