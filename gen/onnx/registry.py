"""Handlers of operators, by domain and operator."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gen.onnx.context import Context
from gen.onnx.values import Value

__all__ = ["Handler", "Inputs", "Registry", "at"]

#: A node's input values; None for one left out.
Inputs = Sequence[Value | None]
#: (context, inputs) -> value of the node's first output, or of all. Raises NodeError; what else a malformed node
#: provokes (ValueError, TypeError and the like) is taken for one by the importer.
Handler = Callable[[Context, Inputs], Value | list[Value]]

HandlerT = TypeVar("HandlerT", bound=Handler)


class Registry(dict[tuple[str, str], Handler]):
    """(domain, operator) -> handler; the domain of ONNX's own operators is ""."""

    def handles(self, *operators: str, domains: Sequence[str] = ("",)) -> Callable[[HandlerT], HandlerT]:
        """Raises ValueError for an operator that has a handler."""
        def register(handler: HandlerT) -> HandlerT:
            self.add({(domain, operator): handler for domain in domains for operator in operators})
            return handler

        return register

    def add(self, handlers: dict[tuple[str, str], Handler]) -> None:
        """Raises ValueError for an operator that has a handler."""
        twice = self.keys() & handlers.keys()
        if twice:
            raise ValueError(f"two handlers of {', '.join(f'{domain}.{op}' for domain, op in sorted(twice))}")
        self.update(handlers)


def at(inputs: Inputs, index: int) -> Value | None:
    """An input that may be left out."""
    return inputs[index] if index < len(inputs) else None
