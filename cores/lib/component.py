"""The base of all components."""

from typing import TYPE_CHECKING, Any

from amaranth.hdl import Signal
from amaranth.lib import wiring

__all__ = ["Component", "record"]


class Component(wiring.Component):
    """A component whose ports follow from a configuration, so that they are in a dictionary and not in annotations.

    To a type checker every name that a component lacks is a port, of any type; what it has is checked.
    """

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...


def record(layout: Any, **arguments: Any) -> Any:
    """A signal of a ``layout``, whose members are attributes of it; ``arguments`` as those of a `Signal`."""
    return Signal(layout, src_loc_at=1, **arguments)
