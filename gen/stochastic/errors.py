from cores.errors import NpugenError

__all__ = ["BackboneError", "DataError"]


class DataError(NpugenError):
    """Images that are missing or damaged; the message names the file."""

    code = "bad-images"


class BackboneError(NpugenError, ValueError):
    """A word that is no backbone, or one that does not suit the images."""

    code = "bad-backbone"
