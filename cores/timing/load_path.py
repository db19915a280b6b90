"""Of the ways into the input buffer."""

from typing import ClassVar

__all__ = ["LoadPathTiming", "PixelPathTiming"]


class LoadPathTiming:
    """Of `LoadPath`, cores/load/load_path.py."""

    #: The hardware, ``module:class``: by name, as whoever plans does not import it.
    HARDWARE: ClassVar[str]
    #: Cycles from an entry's setting out until it is written: as many as the path has registers.
    LATENCY: ClassVar[int]


class PixelPathTiming(LoadPathTiming):
    """Of `PixelPath`, cores/load/pixel_path.py."""

    HARDWARE = "cores.load.pixel_path:PixelPath"
    LATENCY = 1
