"""The hardware of the stages after the requantizer."""

from importlib import import_module

from ..config import NpuConfig
from ..timing import store
from .store_stage import StoreStage

__all__ = ["stages_of"]


def stages_of(config: NpuConfig) -> tuple[type[StoreStage], ...]:
    """Those that a machine has, in the order of their operations; `cores.timing.store` registers them."""
    found = []
    for timing in store.stages_of(config):
        module, name = timing.HARDWARE.split(":")
        stage = getattr(import_module(module), name)
        assert issubclass(stage, StoreStage) and issubclass(stage, timing), stage
        found.append(stage)
    return tuple(found)
