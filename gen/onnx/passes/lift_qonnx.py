"""Models with QONNX's operators, in an opset whose DequantizeLinear has a scale for each channel."""

import onnx
from onnx import helper, version_converter

from gen.onnx.fused.qonnx import DOMAINS
from gen.onnx.passes.report import nested

__all__ = ["lift_qonnx"]

_OPSET = 13


def lift_qonnx(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, in opset 13 at least if it has such operators; as it is where it cannot be converted.

    Their domain is imported, which some of QONNX's own tools leave out.
    """
    used = {node.domain for node in nested(model.graph.node)} & set(DOMAINS)
    if not used:
        return model
    for domain in sorted(used - {entry.domain for entry in model.opset_import}):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    if max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0) >= _OPSET:
        return model
    try:
        return version_converter.convert_version(model, _OPSET)
    except Exception:   # a converter in C++ raises anything; what is wrong with the model is said by others
        return model
