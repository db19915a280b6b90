"""Of the store engine."""

from typing import ClassVar

from ..arch.isa import Opcode
from ..arch.isa_features import is_supported
from ..arch.numerics import MAXIMUM_SIDE, TABLE_BYTES
from ..config import NpuConfig
from ..config.core import SHARED_TURNS

__all__ = [
    "ChannelParametersTiming", "LocalWriterTiming", "MaximumStageTiming", "RequantizerTiming", "STORE_STAGES",
    "SignPackerTiming", "StagedRequantizerTiming", "StoreEngineTiming", "StoreRunsTiming", "StoreSequencerTiming",
    "StoreStageTiming", "ValueTableTiming", "stages_of",
]


class SignPackerTiming:
    """Of `SignPacker`, cores/store/sign_packer.py."""

    LATENCY = 2


class ChannelParametersTiming:
    """Of `ChannelParameters`, cores/store/channel_parameters.py."""

    #: Cycles from ``release`` until the next block's first beat can be taken.
    RELEASE_CYCLES = 1


class RequantizerTiming:
    """Of `Requantizer`, cores/store/requantizer.py."""

    #: Cycles from issue to output; `late` more.
    LATENCY = 10
    #: Cycles from a pixel's turn at the multipliers to that of its first result; the residual's is one before it.
    SECOND = 8
    ADD_LATENCY = LATENCY + SECOND
    #: Those to the turn of a residual that is multiplied: with the lane's five and the register of the sources its
    #: total is there at the result's. Like the residual's other turn it is one after a multiple of `ADD_CYCLES`.
    FACTOR = SECOND - 4
    #: Cycles of a pixel with a second stage: its own, and two in which the residual and the first stage's result of
    #: pixels further back go through the multipliers.
    ADD_CYCLES = SHARED_TURNS
    #: Cycle in which the residual is taken.
    RESIDUAL = 2
    #: Cycles from an issue with ``release`` to ``released``; `late` more.
    RELEASE = 4
    #: Further cycles of a beat of signs, after its last pixel.
    PACKING = SignPackerTiming.LATENCY

    @classmethod
    def latency(cls, config: NpuConfig, *, add: bool) -> int:
        """Cycles from issue to output."""
        return (cls.ADD_LATENCY if add else cls.LATENCY) + cls.late(config)

    @staticmethod
    def late(config: NpuConfig) -> int:
        """Cycles by which all but reading a word is later: words are added up, or have a register of their own."""
        return int(bool(config.winograd or not config.hard_block_registers))


class StagedRequantizerTiming:
    """Of `StagedRequantizer`, cores/store/stages/staged_requantizer.py, beside what is a `Requantizer`'s."""

    #: Cycles from a residual that is multiplied to the first stage's result: its total is there then.
    FACTOR = 3


class StoreSequencerTiming:
    """Of `StoreSequencer`, cores/store/store_sequencer.py."""

    #: Cycles from taking a STORE until its first pixel may set out: it is checked, and takes its token.
    SETUP_CYCLES = 2
    #: Cycles from seeing a token until it is taken.
    TOKEN_CYCLES = 1
    #: Cycles from a pixel, or the first word of its sum, until its residual is taken.
    RESIDUAL_CYCLES = 1
    #: Cycles from a state to its report.
    STATE_CYCLES = 1


class StoreStageTiming:
    """Of `StoreStage`, cores/store/store_stage.py."""

    #: The hardware, ``module:class``: by name, as whoever plans does not import it.
    HARDWARE: ClassVar[str]
    #: The operation that adds it to the chain.
    OPCODE: ClassVar[Opcode]
    LATENCY: ClassVar[int]
    #: Values, one after another, of which it makes one.
    VALUES: ClassVar[int] = 1

    @staticmethod
    def load_cycles(config: NpuConfig) -> int:
        """Cycles that a beat of what is loaded takes; it leaves in the last of them."""
        return 1

    @staticmethod
    def load_beats(config: NpuConfig) -> int:
        """Beats of what is loaded."""
        return 0


class ValueTableTiming(StoreStageTiming):
    """Of `ValueTable`, cores/store/value_table.py."""

    HARDWARE = "cores.store.value_table:ValueTable"
    OPCODE = Opcode.STORE_TABLE
    LATENCY = 2
    #: Bytes of a word: what a port of a block RAM takes in a cycle, and one look-up table can choose from.
    WORD = 2
    #: Lanes that share a memory, a port each; the first one's is also that for writing.
    SHARED = 2

    @staticmethod
    def load_cycles(config: NpuConfig) -> int:
        return config.beat_bytes // ValueTableTiming.WORD

    @staticmethod
    def load_beats(config: NpuConfig) -> int:
        return TABLE_BYTES // config.beat_bytes


class MaximumStageTiming(StoreStageTiming):
    """Of `MaximumStage`, cores/store/maximum/maximum_stage.py."""

    HARDWARE = "cores.store.maximum.maximum_stage:MaximumStage"
    OPCODE = Opcode.STORE_MAXIMUM
    LATENCY = 1
    VALUES = MAXIMUM_SIDE ** 2


#: The stages after the requantizer, in the order of their operations.
STORE_STAGES: tuple[type[StoreStageTiming], ...] = tuple(sorted(
    (ValueTableTiming, MaximumStageTiming), key=lambda stage: stage.OPCODE))


def stages_of(config: NpuConfig) -> tuple[type[StoreStageTiming], ...]:
    """Those that a machine has."""
    return tuple(stage for stage in STORE_STAGES if is_supported(stage.OPCODE, config))


class StoreRunsTiming:
    """Of `StoreRuns`, cores/store/store_runs.py."""

    #: Cycles from offering a run to offering the next, and from ``start`` to offering the first.
    RUN_CYCLES = 3


class LocalWriterTiming:
    """Of `LocalWriter`, cores/store/local_writer.py."""

    #: Cycles from a beat to ``kept``.
    LATENCY = 1


class StoreEngineTiming:
    """Of `StoreEngine`, cores/store/store_engine.py."""

    #: Beats between the requantizer and the write engine: covers the requantizer's latency and fills one 32-deep LUT
    #: RAM.
    BUFFER_BEATS = 32
    #: Cycles from a beat's leaving that buffer until a pixel can have its place, and until it is known that it was the
    #: last.
    ROOM_CYCLES = 2
    DRAINED_CYCLES = ROOM_CYCLES + 1
