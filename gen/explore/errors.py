from cores.errors import NpugenError

__all__ = ["ExploreError", "SpaceError"]


class ExploreError(NpugenError):
    """A search that cannot be made; the message says why and what to do."""

    code = "bad-search"


class SpaceError(ExploreError, ValueError):
    """A space that is none: an unknown parameter, or a value that it cannot have."""

    code = "bad-space"
