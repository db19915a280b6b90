from cores.errors import NpugenError

__all__ = ["GovernError"]


class GovernError(NpugenError, ValueError):
    """Programs and samples of which no levels can be made; the message is for the user."""

    code = "no-levels"
