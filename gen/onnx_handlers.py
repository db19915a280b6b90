"""What operator handlers share."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gen.onnx_model import Node
from gen.onnx_values import Value

if TYPE_CHECKING:
    from gen.onnx_import import Importer

__all__ = ["Registry", "at"]

#: (importer, node, input values; None for one left out) -> value of the node's first output. ValueError, TypeError and
#: the like that a malformed node provokes become a GraphError in the importer.
Handler = Callable[["Importer", Node, Sequence[Value | None]], Value]


class Registry(dict[str, Handler]):
    """Handlers by operator."""

    def handles(self, *operators: str) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.update(dict.fromkeys(operators, handler))
            return handler

        return register


def at(inputs: Sequence[Value | None], index: int) -> Value | None:
    """An input that may be left out."""
    return inputs[index] if index < len(inputs) else None
