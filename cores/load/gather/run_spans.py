"""Run spans: how far apart a row's first and last run are, for each LOAD_GATHER, before it is taken."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arch.instruction_layout import field_shape, queue_layout
from ...arch.isa import Opcode, Queue
from ...lib.fifo import Fifo

__all__ = ["SPAN_BITS", "RunSpans"]

#: Bits of the bytes from a row's first run to its last.
SPAN_BITS = sum(field_shape(Opcode.LOAD_GATHER, name).width for name in ("outputs", "step"))


class RunSpans(wiring.Component):
    """Multiply ahead: (``outputs`` - 1) * ``step`` of each LOAD_GATHER that is handed on, in order.

    The requester looks at an instruction for a cycle and hands it on in the next; what goes into the multiplier and
    what comes out of it are registers. A span is there `LATENCY` cycles behind ``hand_on``, when its instruction can be
    taken at the soonest, and waits in a FIFO beside that of the instructions.

    Raises ValueError unless ``depth``, of the instructions' FIFO, is a power of two above 1.
    """

    #: Cycles from handing an instruction on until its span is there: product, FIFO.
    LATENCY = 2

    def __init__(self, *, depth: int):
        self._fifo = Fifo(width=SPAN_BITS, depth=depth)
        super().__init__({
            "word": In(queue_layout(Queue.LOAD)),  # the instruction that is handed on, and the cycle before
            "hand_on": In(1),                      # it is
            "spans": Out(stream.Signature(SPAN_BITS)),  # of those that are LOAD_GATHERs, in bytes
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = self._fifo
        gather = data.View(queue_layout(Queue.LOAD), self.word).load_gather
        steps, step = Signal.like(gather.outputs, name="steps"), Signal.like(gather.step, name="step")
        span, gathers = Signal(SPAN_BITS), Signal()
        m.d.sync += [
            steps.eq(gather.outputs - 1),
            step.eq(gather.step),
            span.eq(steps * step),
            gathers.eq(self.hand_on & (gather.opcode == Opcode.LOAD_GATHER)),
        ]
        m.d.comb += [fifo.w_en.eq(gathers), fifo.w_data.eq(span)]
        connect(m, fifo.r_stream, flipped(self.spans))
        return m
