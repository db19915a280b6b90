from cores.errors import NpugenError

__all__ = ["TrainError"]


class TrainError(NpugenError, ValueError):
    """A session, a data set or a model that cannot be trained; the message names it and says what to do."""

    code = "not-trainable"
