"""What the zoo cannot make."""

from cores.errors import ArgumentError

__all__ = ["ZooError"]


class ZooError(ArgumentError):
    """A network that there is not, or not with that size or number of classes."""

    code = "not-in-zoo"
