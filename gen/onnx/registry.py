"""Handlers of operators, by domain and operator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from gen.onnx.context import Context
from gen.onnx.values import Value

__all__ = ["Claim", "Handler", "Inputs", "Place", "Registry", "at"]

#: A node's input values; None for one left out.
Inputs = Sequence[Value | None]
#: (context, inputs) -> value of the node's first output, or of all. Raises NodeError; what else a malformed node
#: provokes (ValueError, TypeError and the like) is taken for one by the importer.
Handler = Callable[[Context, Inputs], Value | list[Value]]

HandlerT = TypeVar("HandlerT", bound=Handler)


class Place(StrEnum):
    """Where the work of an operator is done."""

    MACHINE = "accelerator"
    EDGES = "processor, at inputs and outputs"
    COMPILER = "compiler"


@dataclass(frozen=True)
class Claim:
    """What the documents say of operators: where they run, how, and on what conditions."""

    domains: tuple[str, ...]
    operators: tuple[str, ...]
    place: Place
    conditions: str


class Registry(dict[tuple[str, str], Handler]):
    """(domain, operator) -> handler; the domain of ONNX's own operators is ""."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[Claim] = []

    def handles(self, *operators: str, domains: Sequence[str] = ("",), place: Place = Place.MACHINE,
                conditions: str = "") -> Callable[[HandlerT], HandlerT]:
        """``place``, ``conditions``: of the `Claim`. Raises ValueError for an operator that has a handler."""
        def register(handler: HandlerT) -> HandlerT:
            self._add({(domain, operator): handler for domain in domains for operator in operators})
            self.claims.append(Claim(tuple(domains), operators, place, conditions))
            return handler

        return register

    def include(self, family: "Registry") -> None:
        """The handlers of ``family``, too. Raises ValueError for an operator that has one."""
        self._add(family)
        self.claims += family.claims

    def _add(self, handlers: dict[tuple[str, str], Handler]) -> None:
        twice = self.keys() & handlers.keys()
        if twice:
            raise ValueError(f"two handlers of {', '.join(f'{domain}.{op}' for domain, op in sorted(twice))}")
        self.update(handlers)


def at(inputs: Inputs, index: int) -> Value | None:
    """An input that may be left out."""
    return inputs[index] if index < len(inputs) else None
