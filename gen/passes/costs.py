"""What passes ask of a machine's datapaths, and are given by who runs them."""

from typing import Protocol

from gen.ir.graph import Conv

__all__ = ["Steps"]


class Steps(Protocol):
    """Steps of the array for a tap of a layer, in all its output tiles (`gen.mapping.pack.steps_on`)."""

    def __call__(self, layer: Conv, *, narrow: bool = False) -> int:
        """``narrow``: each channel block of the output is a tile of its own, which is spread."""
