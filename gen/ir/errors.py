from collections.abc import Mapping

from cores.errors import NpugenError

__all__ = ["CompileError", "GraphError", "LayerError", "UnfitError"]


class GraphError(NpugenError, ValueError):
    """A graph that breaks the IR's rules, or a model that cannot become one."""


class CompileError(NpugenError, ValueError):
    """What this configuration cannot run; the message names the layer or the model, and says what to change."""


class LayerError(CompileError):
    """A layer that this configuration cannot run, and why."""

    def __init__(self, layer: str, reason: str) -> None:
        super().__init__(f"layer {layer}: {reason}")
        self.layer, self.reason = layer, reason


class UnfitError(CompileError):
    """All of a graph that this configuration cannot run: ``reasons`` by the names of layers, or of tensors that cannot
    be made or read; at least one.

    The message is that of the first.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        first = next(iter(reasons))
        more = f" (and {len(reasons) - 1} more layers)" if len(reasons) > 1 else ""
        super().__init__(f"layer {first}: {reasons[first]}{more}")
        self.reasons = dict(reasons)
