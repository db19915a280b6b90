from cores.errors import NpugenError

__all__ = ["LevelsError"]


class LevelsError(NpugenError, ValueError):
    """A file that holds no levels of voltage and frequency; the message names the file."""

    code = "bad-levels"
