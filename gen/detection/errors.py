from cores.errors import NpugenError

__all__ = ["AnnotationError", "HeadError"]


class AnnotationError(NpugenError, ValueError):
    """Annotations that are not what they must be, or do not go with the samples; the message names the file."""

    code = "bad-annotations"


class HeadError(NpugenError, ValueError):
    """A description of a detector's outputs that is none, or is not of this model."""

    code = "bad-head"
