"""Brings the program from memory to the three queues."""

from collections.abc import Mapping
from typing import Any, ClassVar

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..arch.axi import AxiResponse
from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import INDEX_BITS, QueuedInstruction, opcode_of
from ..arch.isa import INSTRUCTION_BYTES, Opcode, Queue
from ..arch.isa_features import is_supported, used_bits
from ..bus.axi import ErrorReport, read_data_layout, read_request_layout
from ..config import NpuConfig
from ..lib.component import Component, record
from ..lib.fifo import Fifo, ShallowFifo, SingleFifo
from ..timing.control import InstructionFetchTiming
from .instruction_check import InstructionCheck

__all__ = ["InstructionFetch"]


class InstructionFetch(InstructionFetchTiming, Component):
    """Fetches instructions in order, checks them, and hands each to its queue; SYNC and END stay here.

    ``start`` must follow a reset, which is what forgets the last program. An instruction takes `DISPATCH_CYCLES` (one
    more on a 64-bit bus). Memory is asked only for what there is room for, and never beyond the beat that holds the
    last of ``program_length`` instructions.

    SYNC and END wait until the queues have been empty and ``engines_idle`` up for `CALM_CYCLES`; END also for the last
    requested beat. Then ``done`` pulses.

    Reports ILLEGAL, READ_SLVERR and READ_DECERR for the instruction that has them, once it is its turn, and NO_END with
    index ``program_length``; then stops until the next reset.
    """

    #: What the queues are. Of a load much follows, and what takes it comes early; it is the other way round with the
    #: others.
    QUEUES: ClassVar[Mapping[Queue, Any]] = {Queue.LOAD: ShallowFifo, Queue.COMPUTE: Fifo, Queue.STORE: Fifo}

    def __init__(self, config: NpuConfig):
        self.config = config
        entry = stream.Signature(QueuedInstruction)
        super().__init__({
            "start": In(1),                        # begin at ``program_address``
            "program_address": In(config.address_width),  # bus address of the program, a multiple of 4096
            "program_length": In(INDEX_BITS),      # instructions
            "request": Out(stream.Signature(read_request_layout(config))),  # reads for the bus
            "data": In(read_data_layout(config)),  # what answers them
            "load": Out(entry),                    # the load queue
            "compute": Out(entry),                 # the compute queue
            "store": Out(entry),                   # the store queue
            "engines_idle": In(1),                 # no engine and no write is at work
            "done": Out(1),                        # END has been reached
            "error": Out(ErrorReport),             # of an instruction, once it is its turn
            "halt": In(1),                         # dispatch nothing more
            "index": Out(INDEX_BITS),              # instruction to be dispatched next
            "dispatched": Out(1),                  # one is, in this cycle
            "waiting": Out(1),                     # it finds its queue full
        })

    def elaborate(self, platform):
        m = Module()
        word = Signal(8 * INSTRUCTION_BYTES)
        response = record(AxiResponse)
        word_valid, word_taken, quiet = Signal(), Signal(), Signal()
        stopped = Signal()
        m.submodules.check = check = InstructionCheck(self.config)
        # It is done with an instruction in the cycle in which that is dispatched.
        assert check.LATENCY == self.WORD_CYCLES + self.DISPATCH_CYCLES - 1
        self._fetch(m, check=check, response=response, valid=word_valid, taken=word_taken, quiet=quiet,
                    stopped=stopped)
        with m.If(check.take):
            m.d.sync += word.eq(check.word)
        queues_empty, has_room, push = Signal(), Signal(), Signal()
        self._queues(m, word=word, queue=check.next_queue, push=push, has_room=has_room, empty=queues_empty)

        # Work passes from queue to engine and from engine to engine with a cycle in which neither shows it.
        calm, settled = Signal(range(self.CALM_CYCLES + 1)), Signal()
        m.d.comb += settled.eq(calm.all())
        with m.If(~(queues_empty & self.engines_idle)):
            m.d.sync += calm.eq(0)
        with m.Elif(~settled):
            m.d.sync += calm.eq(calm + 1)
        # What the checked word is, and whether it could not be read, is known when it is to be dispatched.
        is_control, is_end, unread = Signal(), Signal(), Signal()
        m.d.comb += is_control.eq(check.queue == Queue.CONTROL)
        m.d.sync += [is_end.eq(opcode_of(word) == Opcode.END),
                     unread.eq(response.matches(AxiResponse.SLVERR, AxiResponse.DECERR))]

        # Instructions up to ``program_length``; the flags follow it in time for the next.
        left, last, none_left = Signal.like(self.program_length), Signal(), Signal()
        m.d.sync += last.eq(left == 1)
        with m.If(self.start):
            m.d.sync += [left.eq(self.program_length), none_left.eq(self.program_length == 0)]

        failed, failure = Signal(), record(ErrorCode)
        m.d.sync += [self.error.valid.eq(failed), self.error.code.eq(failure), self.error.index.eq(self.index)]
        with m.FSM() as control:
            m.d.comb += stopped.eq(control.ongoing("STOPPED"))
            with m.State("STOPPED"):
                with m.If(self.start):
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(none_left):
                    m.d.comb += [failed.eq(~self.halt), failure.eq(ErrorCode.NO_END)]
                    m.next = "STOPPED"
                with m.Elif(word_valid):
                    m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(self.halt):
                    m.next = "STOPPED"
                with m.Elif(unread | check.illegal):
                    m.d.comb += failed.eq(1)
                    with m.If(~unread):
                        m.d.comb += failure.eq(ErrorCode.ILLEGAL)
                    with m.Elif(response == AxiResponse.SLVERR):
                        m.d.comb += failure.eq(ErrorCode.READ_SLVERR)
                    with m.Else():
                        m.d.comb += failure.eq(ErrorCode.READ_DECERR)
                    m.next = "STOPPED"
                with m.Else():
                    # One of the dispatcher's own has no queue, and so no room.
                    m.d.comb += [
                        push.eq(1),
                        self.dispatched.eq(has_room | (is_control & settled & (~is_end | quiet))),
                        self.waiting.eq(~is_control & ~has_room),
                    ]
                with m.If(self.dispatched):
                    m.d.comb += [
                        word_taken.eq(1),
                        self.done.eq(is_end),
                    ]
                    m.d.sync += [self.index.eq(self.index + 1), left.eq(left - 1), none_left.eq(last)]
                    m.next = "CHECK"
                    with m.If(self.done):
                        m.next = "STOPPED"
        return m

    def _fetch(self, m: Module, *, check, response, valid, taken, quiet, stopped):
        """Requests with reserved room, the beat buffer, and the gearbox from beats to instructions.

        An instruction that ``check`` takes is ``valid``, with its bus ``response``, until it is ``taken``. With END a
        beat after it leaves the buffer; for the room that this makes nothing is asked, as all is ``stopped`` then.
        """
        beat_bytes = self.config.beat_bytes
        m.submodules.buffer = buffer = ShallowFifo(width=self.config.beat_bits + 2, depth=self.BUFFER_BEATS)
        m.d.comb += [
            buffer.w_en.eq(self.data.valid),
            buffer.w_data.eq(Cat(self.data.data, self.data.response)),
        ]
        beat, beat_response = buffer.r_data[:self.config.beat_bits], buffer.r_data[self.config.beat_bits:]
        free, takes = Signal(), Signal()
        m.d.comb += [free.eq(~valid | taken), takes.eq(free & buffer.r_rdy)]
        half: Value = Signal()  # the first of two beats is there, or the first of two instructions is done with
        beats = INSTRUCTION_BYTES // beat_bytes
        if beats > 2:
            count, before = Signal(range(beats)), Signal((beats - 1) * self.config.beat_bits)
            with m.If(takes):
                m.d.sync += [count.eq(count + 1), before.eq(Cat(before, beat)[len(beat):])]
            half = count.any()      # some of its beats are there
            m.d.comb += [buffer.r_en.eq(free), check.take.eq(takes & count.all()), check.word.eq(Cat(before, beat))]
            total = self.program_length << exact_log2(beats)
        elif beats == 2:
            low = Signal(self.config.beat_bits)
            with m.If(takes):
                m.d.sync += [half.eq(~half), low.eq(beat)]
            m.d.comb += [buffer.r_en.eq(free), check.take.eq(takes & half), check.word.eq(Cat(low, beat))]
            total = self.program_length << 1
        elif beats == 1:
            m.d.comb += [buffer.r_en.eq(free), check.take.eq(takes), check.word.eq(beat)]
            total = self.program_length
        else:
            with m.If(takes):
                m.d.sync += half.eq(~half)
            m.d.comb += [buffer.r_en.eq(free & half), check.take.eq(takes),
                         check.word.eq(beat.word_select(half, 8 * INSTRUCTION_BYTES))]
            total = (self.program_length + 1) >> 1
        with m.If(taken):
            m.d.sync += valid.eq(0)
        with m.If(check.take):
            m.d.sync += valid.eq(1)
        # Of the beats of an instruction the first that failed counts.
        first_failed = half & Value.cast(response)[1] if beats > 1 else Const(0, 1)
        with m.If(takes & ~first_failed):
            m.d.sync += response.eq(beat_response)

        left = Signal(len(total))               # beats still to ask for
        some_left, many_left = Signal(), Signal()       # a beat; as many as a request has
        reserved = Signal(range(self.BUFFER_BEATS + 1))     # beats asked for and not yet taken from the buffer
        wants, makes, made = Signal(), Signal(), Signal()   # a request; the last: in the cycle before
        request, popped = self.request, Signal()
        m.d.comb += [
            wants.eq(some_left & ~stopped & (reserved <= self.BUFFER_BEATS - self.REQUEST_BEATS)),
            makes.eq(wants & ~request.valid),
            popped.eq(buffer.r_en & buffer.r_rdy),
        ]
        # What is taken from the buffer shows here before its instruction can be dispatched.
        m.d.sync += quiet.eq(~request.valid & ~wants & (reserved == buffer.level))
        # A request stands for a cycle at least: until then what is left, and the room for it, have been counted.
        # What is taken comes late and only chooses between two sums.
        length = request.p.length[:len(reserved)]
        with_all = reserved + Mux(made, length, 0) + made
        less_one = reserved + Mux(made, length, Const(-1, len(length)))
        m.d.sync += [made.eq(makes), reserved.eq(Mux(popped, less_one, with_all)),
                     some_left.eq(left != 0), many_left.eq(left >= self.REQUEST_BEATS)]
        with m.If(makes):
            m.d.sync += [
                request.valid.eq(1),
                request.p.length.eq(Mux(many_left, self.REQUEST_BEATS, left[:len(reserved)]) - 1),
                left.eq(Mux(many_left, left - self.REQUEST_BEATS, 0)),
            ]
        with m.If(request.valid & request.ready):
            m.d.sync += [request.valid.eq(0),
                         request.p.address.eq(request.p.address + self.REQUEST_BEATS * beat_bytes)]
        with m.If(self.start):
            # Compared in instructions: no sum in front.
            many = (self.REQUEST_BEATS - 1) * beat_bytes // INSTRUCTION_BYTES + 1
            m.d.sync += [left.eq(total), some_left.eq(self.program_length != 0),
                         many_left.eq(self.program_length >= many), request.p.address.eq(self.program_address)]

    def _queues(self, m: Module, *, word, queue, push, has_room, empty):
        """One FIFO for each engine, as wide as the longest instruction that goes there.

        ``queue`` is that of the word at hand, known in the cycle before it may be dispatched: with ``push``, if its
        queue ``has_room``, which it had in that cycle.
        """
        none_left, rooms = [], []
        for name, which in (("load", Queue.LOAD), ("compute", Queue.COMPUTE), ("store", Queue.STORE)):
            used = max(used_bits(op, self.config) for op in Opcode
                       if op.queue == which and is_supported(op, self.config))
            layout = data.StructLayout({"index": INDEX_BITS, "word": used})
            depth = self.config.queue_depth
            fifo: Any = (self.QUEUES[which](width=layout.size, depth=depth) if depth > 1
                         else SingleFifo(width=layout.size))
            assert fifo.LATENCY == self.queue_latency(self.config, which)
            m.submodules[f"{name}_queue"] = fifo
            entry, output, room = data.View(layout, fifo.r_data), getattr(self, name), Signal(name=f"{name}_room")
            m.d.sync += room.eq((queue == which) & fifo.w_rdy)
            rooms.append(room)
            m.d.comb += [
                fifo.w_data.eq(Cat(self.index, word[:used])),
                fifo.w_en.eq(push & room),
                output.valid.eq(fifo.r_rdy),
                output.p.index.eq(entry.index),
                output.p.word.eq(entry.word),
                fifo.r_en.eq(output.ready),
            ]
            none_left.append(~fifo.some)
        m.d.comb += [empty.eq(Cat(none_left).all()), has_room.eq(Cat(rooms).any())]
