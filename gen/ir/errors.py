from cores.errors import NpugenError

__all__ = ["CompileError", "GraphError"]


class GraphError(NpugenError, ValueError):
    """A graph that breaks the IR's rules, or a model that cannot become one."""


class CompileError(NpugenError, ValueError):
    """A layer that this configuration cannot run; the message names it and says what to change."""
