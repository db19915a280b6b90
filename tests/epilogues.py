"""What tests ask of a layer's epilogue."""

from typing import TypeVar

from gen.ir.epilogue.base import StoreOp
from gen.ir.graph import Layer

__all__ = ["operation"]

Op = TypeVar("Op", bound=StoreOp)


def operation(layer: Layer, kind: type[Op]) -> Op | None:
    """The operation of a kind that a layer has, if it has one."""
    return next((op for op in layer.epilogue if isinstance(op, kind)), None)
