"""Of instruction fetch, tokens and the control of the machine."""

from ..arch.isa import Queue
from ..config import NpuConfig
from .lib import FifoTiming, ShallowFifoTiming

__all__ = ["InstructionFetchTiming", "MachineControlTiming", "TokenCounterTiming"]


class TokenCounterTiming:
    """Of `TokenCounter`, cores/control/token_counter.py."""

    #: Cycles from the event that gives a token until its taker sees it: engines register what they post, and ``level``
    #: is a register.
    LATENCY = 2


class MachineControlTiming:
    """Of `MachineControl`, cores/control/machine_control.py."""

    #: Cycles from ``start`` until instruction fetch can offer its first request: reset, ``fetch_start``.
    START_CYCLES = 2
    #: Cycles from an error, or the last of ``timeout`` cycles without progress, until ``halt``.
    ERROR_CYCLES = 2


class InstructionFetchTiming:
    """Of `InstructionFetch`, cores/control/instruction_fetch.py."""

    #: Beats of a request, and beats kept before decoding: one request is under way while the other is decoded.
    REQUEST_BEATS = 16
    BUFFER_BEATS = 2 * REQUEST_BEATS
    #: Cycles of an instruction: looked at, then dispatched. Its beats, if it has several, are joined before
    #: that.
    DISPATCH_CYCLES = 2
    #: Cycles from a beat that can be read until its instruction is looked at.
    WORD_CYCLES = 1
    #: Cycles from ``start``, or from a beat that makes room, until a request is offered; then from one to the next.
    REQUEST_CYCLES = 2
    #: Cycles from an entry's leaving a full queue until the next is dispatched, beyond those of the queue itself.
    ROOM_CYCLES = 1
    #: Cycles that SYNC and END want everything to be at rest: all bits of their counter.
    CALM_CYCLES = 3

    @staticmethod
    def queue_latency(config: NpuConfig, queue: Queue) -> int:
        """Cycles from dispatch until an engine sees its instruction: those of its queue."""
        shallow = queue is Queue.LOAD and config.queue_depth > 1
        return ShallowFifoTiming.LATENCY if shallow else FifoTiming.LATENCY
