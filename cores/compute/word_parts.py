"""What the sequencer, its loops and the array are made of where optional units have words of their own: which machine
has what is said here.
"""

from ..config import NpuConfig
from .lane_sources import LaneSources
from .spread.spread_sources import SpreadSources

__all__ = ["sources_of"]


def sources_of(config: NpuConfig) -> LaneSources:
    """What the multipliers choose from."""
    return SpreadSources(config) if config.depthwise else LaneSources(config)
