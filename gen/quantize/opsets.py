"""Models in newer opsets."""

import onnx
from onnx import version_converter

from gen.onnx.passes import disclose, enclose
from gen.onnx.read import MAX_OPSET

__all__ = ["converted", "opset_of"]


def opset_of(model: onnx.ModelProto) -> int:
    """That of ONNX's own operators; the newest of a model that imports none, which has none to convert."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
               default=MAX_OPSET)


def converted(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """``model``, which stays as it is, in another opset; with control flow enclosed, as the converter knows nothing of
    functions. It raises anything.
    """
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    return enclose(version_converter.convert_version(disclose(plain), opset))
