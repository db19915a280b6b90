"""Run spans: how many beats the runs of a row reach over, for each LOAD_GATHER, before it is taken."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arch.instruction_layout import is_operation, queue_layout
from ...arch.isa import Opcode, Queue
from ...config import NpuConfig
from ...lib.component import Component
from ...lib.fifo import Fifo

__all__ = ["SPAN_BITS", "RunSpans", "run_length"]

#: Bits of a span in beats, of eight bytes at least.
SPAN_BITS = 16


def run_length(gather: data.View, lanes: int) -> Value:
    """Bytes of a run of the LOAD_GATHER: no more than a beat's."""
    return Mux(gather.length > lanes, lanes, gather.length)


class RunSpans(Component):
    """Multiply ahead: beats from a row's first, padding in front included, to the end of its last run.

    The requester looks at an instruction for a cycle and hands it on in the next; what goes into the multiplier and
    what comes out of it are registers. The span of a LOAD_GATHER is there `LATENCY` cycles after ``hand_on``, when
    the instruction can be taken at the soonest, and waits in a FIFO beside that of the instructions.

    Raises ValueError unless ``depth``, of the instructions' FIFO, is a power of two above 1.
    """

    #: Cycles from handing an instruction on until its span is there: product, FIFO.
    LATENCY = 2

    def __init__(self, config: NpuConfig, *, depth: int):
        self.config = config
        self._fifo = Fifo(width=SPAN_BITS, depth=depth)
        super().__init__({
            "word": In(queue_layout(Queue.LOAD)),  # the instruction that is handed on, and the cycle before
            "hand_on": In(1),                      # it is
            "spans": Out(stream.Signature(SPAN_BITS)),  # of those that are LOAD_GATHERs, in beats
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = self._fifo
        lanes = self.config.beat_bytes
        shift = (lanes - 1).bit_length()
        gather = data.View(queue_layout(Queue.LOAD), self.word).load_gather
        first = Signal.like(gather.start, name="first")
        steps, step = Signal.like(gather.outputs, name="steps"), Signal.like(gather.step, name="step")
        # Of the first run, from the row's first beat on: its first byte, and the last of the beat that it ends in.
        begin, length, end = Signal(range(1 << len(first) - 1)), Signal(range(lanes + 1)), Signal(range(6 * lanes))
        distance, gathers = Signal(len(steps) + len(step)), Signal()    # from the first run to the last, in bytes
        m.d.comb += first.eq(gather.start)
        m.d.sync += [
            steps.eq(gather.outputs - 1),
            step.eq(gather.step),
            begin.eq(Mux(first < 0, first[:shift], first)),
            length.eq(run_length(gather, lanes)),
            distance.eq(steps * step),
            end.eq(begin + length + (lanes - 1)),
            gathers.eq(self.hand_on & is_operation(gather, Opcode.LOAD_GATHER, self.config)),
        ]
        m.d.comb += [fifo.w_en.eq(gathers), fifo.w_data.eq((distance + end) >> shift)]
        connect(m, fifo.r_stream, flipped(self.spans))
        return m
