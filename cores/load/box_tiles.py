"""Boxes that become something else than their pixels: what the load engine knows of that."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from ..config import NpuConfig
from .buffer_port import BufferPort
from .load_dispatch import LoadDispatch
from .load_path import LoadPath
from .padded_walk import PaddedWalk

__all__ = ["BoxTiles"]


class BoxTiles:
    """None do, in a machine without Winograd tiles or a corner turn.

    ``tiled``: boxes that begin are among them. ``ready`` for one of their pixels; ``valid``, there is an entry;
    ``idle``, none is under way. ``port``: what writes the entries.
    """

    tiled: Value = Const(0)
    ready: Value = Const(0)
    valid: Value = Const(0)
    idle: Value = Const(1)
    port: type[BufferPort] = BufferPort

    def __init__(self, config: NpuConfig):
        self.config = config

    def add(self, m: Module) -> None:
        """The hardware becomes a part of the load engine's writer."""

    def side_ready(self, writer: Any) -> Value:
        """For a beat on its way to the side ring."""
        return writer.side.ready

    def connect(self, m: Module, *, writer: Any, port: Any, dispatch: LoadDispatch, path: LoadPath, walk: PaddedWalk,
                there: Value) -> None:
        """To what is beside it in the ``writer``; ``there``: the pixel at hand is. Its reports go before the writer's
        own.
        """
