"""What a machine is: fields, what follows from them, rules, presets and optional units."""

from cores.config.core import ConfigError
from cores.config.npu_config import NpuConfig
from cores.config.parts import part_of
from cores.config.presets import (
    ALL_PRESET_MACS,
    COMPUTING_FEATURES,
    FEATURES,
    MODEL_PURPOSES,
    PRESET_MACS,
    PURPOSES,
    TRIED_FEATURES,
    features_together,
)
from cores.config.units import UNITS, Unit

__all__ = [
    "ALL_PRESET_MACS", "COMPUTING_FEATURES", "FEATURES", "MODEL_PURPOSES", "PRESET_MACS", "PURPOSES", "TRIED_FEATURES",
    "UNITS", "ConfigError", "NpuConfig", "Unit", "features_together", "part_of",
]
