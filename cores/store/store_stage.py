"""What a store can do to its results, after they are requantised: an operation of the chain each."""

from amaranth.hdl import signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout
from ..arch.isa import loads
from ..config import NpuConfig
from ..lib.component import Component
from ..lib.hardware import hardware_of
from ..timing import store
from ..timing.store import StoreStageTiming
from .chain import keeps_word

__all__ = ["StoreStage", "stages_of"]


class StoreStage(StoreStageTiming, Component):
    """One int8 value becomes another, beat by beat: a beat a cycle, `LATENCY` cycles, whether in ``use`` or not. In use
    one that makes a beat of several `VALUES` gives it with the last of them.

    The store engine and its sequencer know nothing else of it: a stage in a machine is an entry of
    `cores.timing.store`, its operation is in the table of `cores.arch.isa`. An operation with a field ``load``
    takes beats from the side ring where that is set; no values are under way then.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        beat = data.ArrayLayout(signed(8), config.ic_lanes)
        super().__init__({
            "use": In(1),           # change values; stands still while some are under way
            "values": In(beat),     # a beat
            "valid": In(1),         # it is one
            "output": Out(beat),    # what becomes of it
            "output_valid": Out(1),  # it is one
            **({"packed": Out(1)} if self.VALUES > 1 else {}),  # a value that makes none, a cycle later
            # The instruction that added it to the chain; stands still as ``use`` does.
            **({"word": In(instruction_layout(self.OPCODE))} if keeps_word(self.OPCODE) else {}),
            **({
                "enable": In(1),        # take what is loaded
                "beats": In(stream.Signature(config.beat_bits)),  # from the side ring
                "loaded": Out(1),       # the last of them is taken
            } if loads(self.OPCODE) else {}),
        })


def stages_of(config: NpuConfig) -> tuple[type[StoreStage], ...]:
    """The hardware of those that a machine has, in the order of their operations; `cores.timing.store` registers them.
    """
    return tuple(hardware_of(stage, stage.HARDWARE, StoreStage) for stage in store.stages_of(config))
