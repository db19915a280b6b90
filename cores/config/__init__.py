"""What a machine is: fields, what follows from them, rules, presets and optional units."""

from cores.config.npu_config import NpuConfig
from cores.config.presets import FEATURES, PRESET_MACS
from cores.config.rules import ConfigError

__all__ = ["FEATURES", "PRESET_MACS", "ConfigError", "NpuConfig"]
