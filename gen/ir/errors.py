from collections.abc import Mapping

from cores.errors import NpugenError, Reason

__all__ = ["CompileError", "GraphError", "LayerError", "UnfitError"]


class GraphError(NpugenError, ValueError):
    """A graph that breaks the IR's rules, or a model that cannot become one."""


class CompileError(NpugenError, ValueError):
    """What this configuration cannot run; the message names the layer or the model, and says what to change."""


class LayerError(CompileError):
    """A layer that this configuration cannot run, and why."""

    def __init__(self, layer: str, reason: str, *, code: str, **fields: object) -> None:
        super().__init__(f"layer {layer}: {reason}", code=code, layer=layer, **fields)
        self.layer, self.reason = layer, Reason(reason, code=code, **fields)


class UnfitError(CompileError):
    """All of a graph that this configuration cannot run: ``reasons`` by the names of layers, or of tensors that cannot
    be made or read; at least one.

    Message and code are those of the first.
    """

    def __init__(self, reasons: Mapping[str, Reason]) -> None:
        first, reason = next(iter(reasons.items()))
        more = f" (and {len(reasons) - 1} more layers)" if len(reasons) > 1 else ""
        super().__init__(f"layer {first}: {reason}{more}", code=reason.code, **{**reason.fields, "layer": first})
        self.reasons = dict(reasons)
