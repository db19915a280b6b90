"""Value table: what becomes of each int8 value, byte by byte from memory."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.utils import exact_log2

from ..arch.numerics import TABLE_BYTES
from ..timing.store import ValueTableTiming
from .store_stage import StoreStage

__all__ = ["ValueTable"]


class ValueTable(ValueTableTiming, StoreStage):
    """Replace each byte of a beat by that of the table in its place, or, without ``use``, by itself.

    While ``enable`` is high, the beats of a table are taken, which are written in `load_cycles` each. Golden model:
    ``sim.store_operations.look_up``.
    """

    def elaborate(self, platform):
        m = Module()
        words = TABLE_BYTES // self.WORD
        write, place, word = Signal(), Signal(range(words)), Signal(8 * self.WORD)
        count = Signal(range(words))
        of_beat = count[:exact_log2(self.load_cycles(self.config))]
        accept = Signal()
        m.d.comb += [
            accept.eq(self.enable & self.beats.valid),
            self.beats.ready.eq(self.enable & of_beat.all()),
            self.loaded.eq(accept & count.all()),
        ]
        m.d.sync += [write.eq(accept), place.eq(count), word.eq(self.beats.payload.word_select(of_beat, 8 * self.WORD))]
        with m.If(accept):
            m.d.sync += count.eq(count + 1)

        for first in range(0, self.config.ic_lanes, self.SHARED):
            memory: Memory
            m.submodules[f"memory{first}"] = memory = Memory(
                shape=8 * self.WORD, depth=words, init=[], attrs={"ram_style": "block"})
            port = memory.write_port()
            m.d.comb += [port.data.eq(word), port.en.eq(write)]
            for lane in range(first, first + self.SHARED):
                value = self.values[lane].as_unsigned()
                read = memory.read_port()
                # No port reads while one writes, so that nothing has to be done about both at one place.
                m.d.comb += [read.addr.eq(Mux(write, place, value[1:]) if lane == first else value[1:]),
                             read.en.eq(~write)]
                if lane == first:
                    m.d.comb += port.addr.eq(read.addr)
                self._lane(m, lane, read.data)
        valid = Signal()
        m.d.sync += [valid.eq(self.valid), self.output_valid.eq(valid)]
        return m

    def _lane(self, m: Module, lane: int, word: Value) -> None:
        """Chooses between the bytes of a word, and the value itself."""
        value = Signal(8, name=f"value{lane}", reset_less=True)
        m.d.sync += [
            value.eq(self.values[lane]),
            self.output[lane].eq(Mux(self.use, word.word_select(value[0], 8), value).as_signed()),
        ]
