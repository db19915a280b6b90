"""Row unit: the pool unit, and Softmax and normalisations over the channels of a pixel, in passes."""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from ...arch.instruction_layout import field_shape, instruction_layout, is_operation
from ...arch.isa import INSTRUCTION_BYTES, Opcode
from ...arch.rows import (
    CENTRE_PLACES,
    COARSE,
    ENTRY_BITS,
    EPSILON_PLACES,
    FACTOR_BITS,
    FACTOR_TABLE,
    INDEX_BITS,
    MEAN_PLACES,
    NUMBER_BITS,
    SHIFTS,
    SQUARES_BITS,
    SUM_BITS,
    TOTAL_BITS,
    RowPass,
)
from ...config import NpuConfig
from ...lib.bits import lanes_below, leading_one, select
from ...lib.component import record
from ...lib.trees import combined, delayed, summed
from ...timing.rows import RowUnitTiming
from ..pool_unit import PoolUnit

__all__ = ["RowUnit"]

#: A value less what is subtracted from it: the multipliers' operands.
_OPERAND_BITS = 18


class RowUnit(RowUnitTiming, PoolUnit):
    """A pool unit that also goes over rows, a row being the channels of a pixel: a block of a pixel a cycle.

    A pass goes over a tile, block by block; pixels in order. The first makes each row's maximum; the next, or of
    moments the first, its sums and of them its factor; the last multiplies. docs/decisions/0009-rows.md has the passes,
    `timing.rows` the cycles. Golden model: ``sim.rows``.
    """

    def __init__(self, config: NpuConfig):
        super().__init__(config)

    @staticmethod
    def ports(config: NpuConfig) -> dict[str, Any]:
        return {
            **PoolUnit.ports(config),
            "row_pass": In(field_shape(Opcode.POOL, "row_pass")),  # what the pixels' blocks are of, 0 for windows
            "row_blocks": In(field_shape(Opcode.POOL, "blocks")),  # of each of the pass's pixels
            "sets": In(1),                                         # there is a setting
            "setting": In(8 * INSTRUCTION_BYTES),                  # a ROWS_SET or ROWS_TABLE
        }

    def follow(self, issued: Any, sequencer: Any) -> list[Any]:
        return [
            self.row_pass.eq(issued.row_pass),
            self.row_blocks.eq(issued.blocks),
            self.sets.eq(sequencer.sets),
            self.setting.eq(sequencer.queue.payload.word),
        ]

    def windows(self) -> Value:
        return self.enable & ~self.row_pass.any()

    def joined(self, m: Module, taps: Sequence[Value], finished: Value, results: Value) -> tuple[Value, Value, Value]:
        config, product, last = self.config, self.PRODUCT, self.sums(self.config)
        lanes = config.ic_lanes
        # A setting comes a cycle late, with what it sets: when it may come is known late.
        setting, of_unit, of_table = Signal.like(self.setting, name="setting_late", reset_less=True), Signal(), Signal()
        m.d.sync += [setting.eq(self.setting),
                     of_unit.eq(self.sets & is_operation(self.setting, Opcode.ROWS_SET, config)),
                     of_table.eq(self.sets & is_operation(self.setting, Opcode.ROWS_TABLE, config))]
        settings = record(instruction_layout(Opcode.ROWS_SET), name="settings", reset_less=True)
        with m.If(of_unit):
            m.d.sync += Value.cast(settings).eq(setting)
        moments = settings.moments

        # -- which row, in every cycle -------------------------------------------------------------------------------
        pixel, block = Signal(exact_log2(config.rows)), Signal.like(self.row_blocks, name="block")
        end, final = Signal(name="row_end"), Signal(name="row_final")
        of_row = Signal()
        m.d.comb += [
            of_row.eq(self.enable & self.row_pass.any()),
            end.eq(pixel == (settings.pixels - 1)[:len(pixel)]),
            final.eq(block == self.row_blocks - 1),
        ]
        with m.If(of_row):
            m.d.sync += pixel.eq(Mux(end, 0, pixel + 1))
            with m.If(end):
                m.d.sync += block.eq(Mux(final, 0, block + 1))
        valid = [of_row, *(Signal(name=f"row_valid{cycle}") for cycle in range(1, last + self.SCALARS))]
        m.d.sync += [after.eq(before) for before, after in zip(valid, valid[1:], strict=False)]
        step = record(data.StructLayout({"kind": self.row_pass.shape(), "pixel": pixel.shape(), "final": 1,
                                         "first": 1}), name="step")
        m.d.comb += [step.kind.eq(self.row_pass), step.pixel.eq(pixel), step.final.eq(final),
                     step.first.eq(block == 0)]
        steps = [step]
        for cycle in range(1, last + self.SCALARS):
            following = record(step.shape(), name=f"step{cycle}", reset_less=True)
            m.d.sync += following.eq(steps[-1])
            steps.append(following)

        def kind_at(cycle: int, kind: RowPass) -> Value:
            return steps[cycle].kind == kind

        # -- cycle 1: values and centres -----------------------------------------------------------------------------
        centre_write, centre_read = self._memory(m, "centres", signed(_OPERAND_BITS))
        factor_shape = data.StructLayout({"factor": unsigned(FACTOR_BITS), "coarse": 2})
        factor_write, factor_read = self._memory(m, "factors", factor_shape)
        m.d.comb += [centre_read.addr.eq(pixel), factor_read.addr.eq(pixel)]
        below, within = Signal(), Signal()
        whole, part = settings.channels[exact_log2(lanes):], settings.channels[:exact_log2(lanes)]
        m.d.sync += [below.eq(block < whole), within.eq(block == whole)]
        centre = Signal(signed(_OPERAND_BITS))
        m.d.comb += centre.eq(centre_read.data)
        with m.If(kind_at(1, RowPass.MAXIMUM)):
            m.d.comb += centre.eq(0)
        with m.Elif(kind_at(1, RowPass.TOTAL) & moments):
            m.d.comb += centre.eq(settings.zero_point << CENTRE_PLACES)

        # -- cycle 2: differences; cycle 3: exponentials; cycle 4: operands; cycle 5: products -----------------------
        squares = Signal()      # of cycle 3
        m.d.comb += squares.eq(moments & kind_at(3, RowPass.TOTAL))
        inside2, inside3 = Signal(lanes), Signal(lanes)
        m.d.sync += [inside2.eq(below.replicate(lanes) | within.replicate(lanes) & lanes_below(part, lanes)),
                     inside3.eq(inside2)]
        factor3 = record(factor_shape, name="factor3", reset_less=True)
        factor2 = record(factor_shape, name="factor2", reset_less=True)
        m.d.sync += [factor2.eq(factor_read.data), factor3.eq(factor2)]
        coarse = delayed(m, factor3.coarse, product - 3, "coarse")
        differences = [Signal(signed(_OPERAND_BITS), name=f"difference{lane}", reset_less=True)
                       for lane in range(lanes)]
        m.d.sync += [difference.eq((tap << CENTRE_PLACES) - centre)
                     for difference, tap in zip(differences, taps, strict=True)]
        entries = self._entries(m, of_table, instruction_layout(Opcode.ROWS_TABLE)(setting), [
            difference[CENTRE_PLACES:CENTRE_PLACES + 8] for difference in differences])
        products = []
        values = record(results.shape(), name="row_results", reset_less=True)
        for lane, (difference, entry) in enumerate(zip(differences, entries, strict=True)):
            kept, a, b, made = (
                Signal(signed(bits), name=f"{name}{lane}", reset_less=True)
                for name, bits in (("kept", _OPERAND_BITS), ("operand", _OPERAND_BITS), ("other", _OPERAND_BITS),
                                   ("product", 2 * _OPERAND_BITS)))
            value = kept[CENTRE_PLACES:].as_signed()
            m.d.sync += [
                kept.eq(difference),
                a.eq(Mux(inside3[lane], Mux(moments, Mux(squares, value, kept), entry), 0)),
                b.eq(Mux(kind_at(3, RowPass.TOTAL), Mux(moments, value, 1), factor3.factor)),
                made.eq(a * b),
                values[lane].eq(select(coarse, [made >> COARSE * number for number in range(1 << len(coarse))])),
            ]
            products.append(made)

        # -- sums of all lanes, and of all blocks --------------------------------------------------------------------
        lowest = -(1 << 8)
        of_blocks = [delayed(m, Mux(inside2[lane], difference[CENTRE_PLACES:].as_signed(),
                                    Mux(kind_at(2, RowPass.MAXIMUM), lowest, 0)), 1, f"of_block{lane}_")
                     for lane, difference in enumerate(differences)]
        plain = delayed(m, summed(m, of_blocks, "plain"), product - 3, "plain_late")
        most = delayed(m, combined(m, of_blocks, _most, "most"), product - 3, "most_late")
        total = summed(m, [made[:ENTRY_BITS] for made in products], "total")
        sums_shape = data.StructLayout({"sum": signed(SUM_BITS), "total": unsigned(TOTAL_BITS)})
        sums_write, sums_read = self._memory(m, "sums", sums_shape)
        now = steps[last]
        before = record(sums_shape, name="before")
        added = record(sums_shape, name="added")
        maximum = Signal()
        m.d.comb += [
            maximum.eq(kind_at(last, RowPass.MAXIMUM)),
            sums_read.addr.eq(steps[last - 1].pixel),
            before.eq(sums_read.data),
            added.total.eq(Mux(now.first, 0, before.total) + total),
            sums_write.addr.eq(now.pixel),
            sums_write.data.eq(added),
            sums_write.en.eq(valid[last]),
        ]
        with m.If(maximum):
            m.d.comb += added.sum.eq(Mux(~now.first & (before.sum > most), before.sum, most))
        with m.Elif(moments & settings.centred):
            m.d.comb += added.sum.eq(Mux(now.first, 0, before.sum) + plain)
        found = record(sums_shape, name="found", reset_less=True)
        m.d.sync += found.eq(added)

        # -- what follows of them ------------------------------------------------------------------------------------
        made_centre, made_factor = self._scalars(m, settings, found, steps[last + 3].kind == RowPass.MAXIMUM,
                                                 factor_shape)
        at_centre, at_factor = last + 4, last + self.SCALARS - 1
        m.d.comb += [
            centre_write.addr.eq(steps[at_centre].pixel),
            centre_write.data.eq(made_centre),
            centre_write.en.eq(valid[at_centre] & steps[at_centre].final & (
                kind_at(at_centre, RowPass.MAXIMUM) | kind_at(at_centre, RowPass.TOTAL) & moments)),
            factor_write.addr.eq(steps[at_factor].pixel),
            factor_write.data.eq(made_factor),
            factor_write.en.eq(valid[at_factor] & steps[at_factor].final & kind_at(at_factor, RowPass.TOTAL)),
        ]
        made_result = Signal()
        m.d.comb += made_result.eq(valid[product + 1] & kind_at(product + 1, RowPass.RESULT))
        joined = record(results.shape(), name="joined")
        m.d.comb += Value.cast(joined).eq(Mux(made_result, Value.cast(values), Value.cast(results)))
        return finished | made_result, joined, finished | Cat(valid).any()

    def _memory(self, m: Module, name: str, shape: Any) -> tuple[Any, Any]:
        """Ports of a memory with a word for each row: what is written can be read in the same cycle."""
        memory: Memory
        m.submodules[name] = memory = Memory(shape=shape, depth=self.config.rows, init=[])
        write = memory.write_port()
        return write, memory.read_port(transparent_for=(write,))

    def _entries(self, m: Module, write: Value, table: Any, places: Sequence[Value]) -> list[Value]:
        """The exponentials of differences, a cycle later; a ``write`` sets an entry. A memory has two ports, each of
        which reads for a lane.
        """
        entries = []
        for lane in range(0, len(places), 2):
            memory: Memory
            m.submodules[f"table{lane}"] = memory = Memory(
                shape=unsigned(ENTRY_BITS), depth=256, init=[], attrs={"ram_style": "block"})
            port = memory.write_port()
            m.d.comb += [port.data.eq(table.entry), port.en.eq(write)]
            for number, place in enumerate(places[lane:lane + 2]):
                read = memory.read_port()
                # No port reads while one writes.
                m.d.comb += [read.addr.eq(Mux(write, table.place, place) if number == 0 else place), read.en.eq(~write)]
                if number == 0:
                    m.d.comb += port.addr.eq(read.addr)
                entries.append(read.data)
        return entries

    def _scalars(self, m: Module, settings: Any, found: Any, maximum: Value, shape: Any) -> tuple[Value, Value]:
        """What is subtracted from a row, three cycles after its sums, and what it is multiplied by, three more after.

        ``maximum``: the sum is one, in time with the former.
        """
        def register(name: str, value: Value, bits: Any = None) -> Value:
            made = Signal(value.shape() if bits is None else bits, name=name, reset_less=True)
            m.d.sync += made.eq(value)
            return made

        moments = settings.moments
        squared = register("squared", found.sum * found.sum)
        many = register("many", found.total[:SQUARES_BITS] * settings.channels)
        total = register("total_late", found.total)
        mean = register("mean", found.sum * settings.mean)
        maxima = delayed(m, found.sum, 1, "maxima")

        less = MEAN_PLACES - CENTRE_PLACES
        number = register("number", Mux(
            moments, ((many - squared) << EPSILON_PLACES) + settings.epsilon, total)[:NUMBER_BITS])
        means, maxima = register("means", (mean + (1 << less - 1)) >> less), delayed(
            m, maxima, 1, "maxima_late")
        centre = register("centre", Mux(
            maximum, maxima << CENTRE_PLACES, means + (settings.zero_point << CENTRE_PLACES)), signed(_OPERAND_BITS))

        # The exponent's place: of moments its half. First in each byte, then of the bytes.
        size = 8
        parts = [number[at:at + size] for at in range(0, len(number), size)]
        some = register("some", Cat(part.any() for part in parts))
        places = [register(f"place{number}_", leading_one(part)) for number, part in enumerate(parts)]
        highest = leading_one(some)
        places += [Const(0, 1)] * ((1 << len(highest)) - len(places))
        top = register("top", Cat(select(highest, places)[:exact_log2(size)], highest) | moments)   # of the index
        number = delayed(m, number, 2, "number_late")
        shifted = (Cat(Const(0, INDEX_BITS - 1), number) >> top)[:INDEX_BITS]
        index = register("index", Cat(shifted, ~moments))
        place = register("place_late", Mux(moments, top >> 1, top))

        memory: Memory
        m.submodules.inverses = memory = Memory(shape=unsigned(FACTOR_BITS), depth=len(FACTOR_TABLE), init=FACTOR_TABLE)
        read = memory.read_port()
        m.d.comb += read.addr.eq(index)
        away = place - settings.base
        shift = register("shift", Mux(away < 0, 0, Mux(away >= SHIFTS, SHIFTS - 1, away))[:exact_log2(SHIFTS)])
        made = record(shape, name="made", reset_less=True)
        fine, far = shift[:exact_log2(COARSE)], shift[exact_log2(COARSE):]
        # Of exponentials the product is shifted by two of the coarse steps, or three.
        m.d.sync += [
            made.factor.eq(read.data >> Mux(moments, fine, Cat(fine, Mux(far.any(), far - 1, 0)[:len(far)]))),
            made.coarse.eq(Mux(moments, far, Cat(far.any(), 1))),
        ]
        return centre, Value.cast(made)


def _most(some: Sequence[Value]) -> Value:
    """The greatest of signed numbers: each compared with each at once, for the fewest levels."""
    wins: list[Value] = [Const(1)] * len(some)
    for first, second in combinations(range(len(some)), 2):
        less = some[first] < some[second]
        wins[first] &= ~less
        wins[second] &= less
    width = max(map(len, some))
    chosen = [won.replicate(width) & one for won, one in zip(wins, some, strict=True)]
    return reduce(or_, chosen)[:width].as_signed()
