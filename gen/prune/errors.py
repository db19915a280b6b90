from cores.errors import NpugenError

__all__ = ["PruneError"]


class PruneError(NpugenError, ValueError):
    """A model that cannot be pruned as asked; the message says why and what to do."""

    code = "not-prunable"
