"""What operator handlers share."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from gen.onnx.model import Node
from gen.onnx.values import Value

if TYPE_CHECKING:
    from gen.onnx.importer import Importer

__all__ = ["MICROSOFT", "NodeError", "Registry", "at"]

#: The domain of operators that onnxruntime adds to ONNX.
MICROSOFT = "com.microsoft"


class NodeError(ValueError):
    """What is wrong with the node at hand, for its reader."""


#: (importer, node, input values; None for one left out) -> value of the node's first output, or of all. ValueError,
#: TypeError and the like that a malformed node provokes become a GraphError in the importer.
Handler = Callable[["Importer", Node, Sequence[Value | None]], Value | list[Value]]

HandlerT = TypeVar("HandlerT", bound=Handler)


class Registry(dict[tuple[str, str], Handler]):
    """Handlers by domain and operator."""

    def handles(self, *operators: str, domains: Sequence[str] = ("",)) -> Callable[[HandlerT], HandlerT]:
        def register(handler: HandlerT) -> HandlerT:
            self.update({(domain, operator): handler for domain in domains for operator in operators})
            return handler

        return register


def at(inputs: Sequence[Value | None], index: int) -> Value | None:
    """An input that may be left out."""
    return inputs[index] if index < len(inputs) else None
