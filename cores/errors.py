"""The base of the project's exceptions."""

__all__ = ["ArgumentError", "NpugenError"]


class NpugenError(Exception):
    """Something that the user can mend; the message says what, and is printed as it stands."""


class ArgumentError(NpugenError, ValueError):
    """What the user asked for makes no sense, or cannot be had: the options are to blame, not a file."""
