"""Which way into the input buffer a machine has."""

from ..config import NpuConfig, part_of
from .gather import GatheredPathTiming
from .load_path import LoadPathTiming, PixelPathTiming

__all__ = ["path_of"]


def path_of(config: NpuConfig) -> type[LoadPathTiming]:
    return part_of(config, PixelPathTiming, {"gather": GatheredPathTiming})
