"""Which way into the input buffer a machine has."""

from ..config import NpuConfig
from .gather import GatheredPathTiming
from .load_path import LoadPathTiming, PixelPathTiming

__all__ = ["path_of"]


def path_of(config: NpuConfig) -> type[LoadPathTiming]:
    return GatheredPathTiming if config.gather else PixelPathTiming
