"""The stages after the requantizer, in the order of their operations."""

from ..arch.units import is_supported
from ..config import NpuConfig
from ..timing.store import STORE_STAGES as TIMINGS
from .store_stage import StoreStage
from .value_table import ValueTable

__all__ = ["STORE_STAGES", "stages_of"]

STORE_STAGES: tuple[type[StoreStage], ...] = tuple(sorted((ValueTable,), key=lambda stage: stage.OPCODE))
assert [stage.OPCODE for stage in STORE_STAGES] == [stage.OPCODE for stage in TIMINGS], (
    "a stage is named in cores/timing/store.py too")


def stages_of(config: NpuConfig) -> tuple[type[StoreStage], ...]:
    """Those that a machine has."""
    return tuple(stage for stage in STORE_STAGES if is_supported(stage.OPCODE, config))
