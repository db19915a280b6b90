"""The hardware of the stages after the requantizer."""

from ..config import NpuConfig
from ..lib.hardware import hardware_of
from ..timing import store
from .store_stage import StoreStage

__all__ = ["stages_of"]


def stages_of(config: NpuConfig) -> tuple[type[StoreStage], ...]:
    """Those that a machine has, in the order of their operations; `cores.timing.store` registers them."""
    return tuple(hardware_of(stage, stage.HARDWARE, StoreStage) for stage in store.stages_of(config))
