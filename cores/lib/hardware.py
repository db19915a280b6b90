"""Hardware by the description of its timing, which names it and does not import it."""

from importlib import import_module
from typing import TypeVar

__all__ = ["hardware_of"]

_T = TypeVar("_T")


def hardware_of(timing: type, name: str, base: type[_T]) -> type[_T]:
    """The component ``module:class``, a ``base`` that is built from ``timing``."""
    module, found = name.split(":")
    component = getattr(import_module(module), found)
    assert issubclass(component, base) and issubclass(component, timing), f"{name} is not built from {timing.__name__}"
    return component
