"""Models as files have them."""

import onnx

from gen.onnx.passes import disclose

__all__ = ["content_of"]


def content_of(model: onnx.ModelProto) -> bytes:
    """A model, which stays as it is, in plain ONNX: control flow is where it was; the same bytes each time."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    return bytes(disclose(plain).SerializeToString(deterministic=True))
