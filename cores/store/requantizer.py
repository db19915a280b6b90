"""From accumulators to activations: the arithmetic half of the store engine."""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..arch.numerics import MIN_SHIFT, POOL_WIDTH
from ..config import NpuConfig
from ..lib.bits import select
from ..lib.component import Component, record
from ..timing.store import RequantizerTiming
from .chain import Chain
from .requantizer_lane import ChannelLayout, LaneControl, RequantizerLane
from .sign_packer import SignPacker

__all__ = ["PixelIssue", "Requantizer", "SelectShape"]


def SelectShape(config: NpuConfig) -> range:  # noqa: N802 - a shape
    """Places of a block's pixel in an accumulator word; at least a bit, as Verilog has no vectors without any."""
    return range(max(2, config.word_places))


def PixelIssue(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A pixel that sets out this cycle if ``valid``.

    ``select`` is ``pixel * oc_groups + group`` of the accumulator word; ``pooled`` takes the pool unit's beat instead.
    ``load`` takes the channel parameters over for this pixel and those after it; ``release``: that was the last time.
    ``row_end``: the last of its row.

    With ``winograd``, words are also read for a pixel before it sets out: the first of its sum has ``first``, those
    whose sign is not that of the word before have ``negate``.
    """
    return data.StructLayout({"valid": 1, "pooled": 1, "select": SelectShape(config), "load": 1, "release": 1,
                              **({"row_end": 1} if config.binary_rows else {}),
                              **({"first": 1, "negate": 1} if config.winograd else {})})


class Requantizer(RequantizerTiming, Component):
    """Requantise a pixel of a block a cycle, or with a second stage requantise and add (or scale, or multiply) one in
    `ADD_CYCLES`.

    Latency: `LATENCY` cycles, `ADD_LATENCY` with a second stage. Cycle 0 is that of ``issue``; ``pooled`` is taken
    then, ``accumulators`` in cycle 1, ``residual`` in cycle `RESIDUAL`. With ``winograd`` in the configuration a source
    is a sum of words, the last of them its pixel's own, and all but reading and selecting these is a cycle later; with
    ``bare_blocks`` a word has a register in front of the selection, and the same is a cycle later. With a second stage
    every pixel needs ``load``, and pixels set out multiples of `ADD_CYCLES` apart; with STORE_LEAKY, which has no
    residual, none sets out `SECOND` cycles after another. ``chain`` stands still while pixels are under way.
    ``released`` follows an issue's ``release`` once ``channels`` may change. Golden models: ``sim.golden.requantize``,
    ``sim.store_operations.residual_add``, ``sim.store_operations.leaky``, ``sim.store_operations.product``.

    With a STORE_MULTIPLY the residual has its turn `FACTOR` cycles after its pixel, so that its total is there when
    the first stage's result comes back: it takes the place of an accumulator, and the result that of a multiplier.

    With STORE_SIGNS the output is beats of signs (`sim.signs.pack_map`), `PACKING` cycles later. They pass
    through the lanes' last registers, whose clip makes zero in that cycle: a multiplexer after them would take a
    look-up table for every bit of a beat. ``packed`` tells of a pixel that makes no beat of its own.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        lanes = config.ic_lanes
        super().__init__({
            "issue": In(PixelIssue(config)),  # a pixel sets out, or a word of its sum is read
            # Word of the issue of the cycle before.
            "accumulators": In(data.ArrayLayout(signed(config.acc_width), config.acc_lanes)),
            # Beat of the pool unit, in the cycle of the issue.
            "pooled": In(data.ArrayLayout(signed(POOL_WIDTH), lanes)),
            "residual": In(config.beat_bits),  # beat of the other operand, `RESIDUAL` cycles after the issue
            "channels": In(data.ArrayLayout(ChannelLayout(config.acc_width), lanes)),  # parameters of the block
            "released": Out(1),                # these may change
            "chain": In(Chain(config)),        # what is done; stands still while pixels are under way
            "output": Out(data.ArrayLayout(signed(8), lanes)),  # a beat of results
            "output_valid": Out(1),            # it is one
            **({"packed": Out(1)} if config.binary_rows else {}),  # a pixel that makes no beat of its own
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        chain = self.chain
        first, second, add = chain.requant, chain.second, chain.adds
        issue, pooled_source, residual = self.issue, self.pooled, self.residual
        if self.late(config):
            late = []
            for signal, name in ((issue, "issue"), (pooled_source, "pooled"), (residual, "residual")):
                late.append(Signal.like(signal, name=f"late_{name}"))
                m.d.sync += late[-1].eq(signal)
            issue, pooled_source, residual = late

        # valid[n], load[n]: the pixel that set out n cycles ago.
        valid = [issue.valid]
        load, release = [issue.valid & issue.load], [issue.valid & issue.release]
        for stages, length, name in ((valid, self.ADD_LATENCY, "valid"), (load, 4, "load"),
                                     (release, self.RELEASE, "release")):
            for cycle in range(1, length + 1):
                delayed = Signal(name=f"{name}{cycle}")
                # Without add a pixel has left here; what follows may switch to add.
                m.d.sync += delayed.eq(stages[-1] & add if cycle == self.LATENCY + 1 else stages[-1])
                stages.append(delayed)
        in_second = [Signal(name=f"second{cycle}") for cycle in range(self.ADD_LATENCY + 1)]
        m.d.comb += [signal.eq(stage & add) for signal, stage in zip(in_second, valid, strict=True)]
        a = self.SECOND     # cycles that the first stage's result is after a pixel

        def other_turn(cycle: int, stages: Sequence[Value]) -> Value:
            """Of the signals in ``stages``, that of the residual's turn."""
            added = stages[cycle + self.SECOND - 1]
            return Mux(multiplies, stages[cycle + self.FACTOR], added) if config.product else added

        if config.product:
            multiplies = chain.multiplies

        control = record(LaneControl)
        m.d.comb += [
            control.load_bias.eq(load[1]),
            control.clear_bias.eq(add),
            control.load_factor.eq(load[2]),
            control.take_factor.eq(add),
            control.residual.eq(other_turn(2, valid) & ~chain.leaky),
            control.load_shift.eq(load[4]),
            control.take_shift.eq(add),
            control.shift.eq(second.add.shift - MIN_SHIFT),
            self.released.eq(release[self.RELEASE]),
        ]
        minus_b = Signal(signed(len(second.add.multiplier_b) + 1), reset_less=True)
        m.d.sync += minus_b.eq(-second.add.multiplier_b)
        output_comes = Mux(add, valid[self.ADD_LATENCY - 1], valid[self.LATENCY - 1])
        # Registers in front of what has many loads: a stage ahead of the cycle in which the lanes see it.
        own, other = in_second[1 + a], other_turn(1, in_second) & ~chain.leaky
        # A STORE_MULTIPLY has its only multiplier, the other operand's, where the others have the result's.
        of_first = Mux(multiplies, other, own) if config.product else own
        of_other = other & ~multiplies if config.product else other
        factor = Mux(of_first, second.add.multiplier_a, Mux(of_other, minus_b, 0))
        early = {
            "factor": factor,
            "negative_factor": Mux(own & chain.leaky, second.leaky.negative, factor),
            "subtrahend": Mux(other_turn(3, in_second) & ~chain.leaky, second.add.constant, 0),
            "accumulate": in_second[3 + a] & ~chain.leaky,
            "zero_point": Mux(in_second[7 + a], second.add.zero_point, first.zero_point),
            "low": Mux(in_second[8 + a], second.add.low, first.low),
            "high": Mux(in_second[8 + a], second.add.high, first.high),
        }
        if config.product:
            early["accumulate"] &= ~multiplies
        if config.binary_rows:
            packer, low_negative, high_negative = self._packer(m, valid, issue.row_end, early)
            # Only first results that a second stage wants back are clipped; all else is zero, for the packer's beats.
            for limit in ("low", "high"):
                early[limit] = Mux(chain.signs & ~(valid[8] & add), 0, early[limit])
        for field, value in early.items():
            register = Signal.like(control[field], name=f"control_{field}", reset_less=True)
            m.d.sync += register.eq(value)
            m.d.comb += control[field].eq(register)

        if config.binary_rows:
            beats = packer.completes
            for cycle in range(self.PACKING):
                delayed = Signal(name=f"beats{cycle}")
                m.d.sync += delayed.eq(beats)
                beats = delayed
            output_comes = Mux(chain.signs, beats, output_comes)
            m.d.comb += self.packed.eq(packer.valid & ~packer.completes)
        m.d.sync += self.output_valid.eq(output_comes)

        # The residual waits for the first stage's result.
        residuals = {self.RESIDUAL: residual}
        for cycle in range(self.RESIDUAL + 1, 2 + self.SECOND):
            residuals[cycle] = Signal(config.beat_bits, name=f"residual{cycle}", reset_less=True)
            m.d.sync += residuals[cycle].eq(residuals[cycle - 1])
        residual = residuals[1 + self.SECOND]
        if config.product:
            residual = Mux(multiplies, residuals[2 + self.FACTOR], residual)

        # Sources: each is zero when it is not the one, so that the lanes only OR them. The total of a residual's turn
        # comes in the register of the pool unit's.
        from_bank, from_pool, place = Signal(), Signal(), Signal.like(self.issue.select, name="place")
        pooled = Signal.like(self.pooled, name="pooled_beat", reset_less=True)
        m.d.sync += [
            from_bank.eq(issue.valid & ~issue.pooled),
            from_pool.eq(issue.valid & issue.pooled),
            place.eq(issue.select if config.bare_blocks else self.issue.select),
            pooled.eq(pooled_source),
        ]
        accumulators = self.accumulators
        if config.bare_blocks:
            accumulators = Signal.like(self.accumulators, name="accumulators_read", reset_less=True)
            m.d.sync += accumulators.eq(self.accumulators)
        if config.winograd:
            # The word of the cycle before, in step with it. A sum is masked unless it is complete and asked for.
            starts, negate, complete = Signal(), Signal(), Signal()
            m.d.sync += [starts.eq(issue.first), negate.eq(issue.negate), complete.eq(from_bank)]
        if config.product:
            returns = Signal()      # the total of the residual's turn stands in the lanes
            m.d.sync += returns.eq(in_second[a] & multiplies)
        for lane in range(config.ic_lanes):
            choices = [accumulators[base + lane] for base in range(0, config.acc_lanes, config.ic_lanes)]
            chosen = select(place, choices)
            bank_source = Signal(signed(config.acc_width), name=f"bank{lane}", reset_less=True)
            pool_source = Signal(signed(POOL_WIDTH), name=f"pool{lane}", reset_less=True)
            unit = RequantizerLane(acc_width=config.acc_width, halves=bool(config.bare_blocks),
                                   packs=bool(config.binary_rows), multiplies=bool(config.product))
            from_outside = Mux(from_pool, pooled[lane], 0)
            if config.product:
                from_outside = from_outside | Mux(returns, unit.total, 0)
            m.d.sync += pool_source.eq(from_outside)
            if config.winograd:
                word = Signal(signed(config.acc_width), name=f"word{lane}", reset_less=True)
                domain = m.d.comb if config.bare_blocks else m.d.sync
                total = Signal(signed(config.acc_width), name=f"sum{lane}", reset_less=True)
                before = Mux(starts, 0, Mux(negate, ~total, total))
                # word + before + carry; as a subtraction for the reason given in `RequantizerLane`.
                domain += word.eq(chosen)
                m.d.sync += total.eq((Cat(0, word) - Cat(starts | ~negate, ~before))[1:])
                m.d.comb += bank_source.eq(Mux(complete, total, 0))
            else:
                m.d.sync += bank_source.eq(Mux(from_bank, chosen, 0))

            m.submodules[f"lane{lane}"] = unit
            m.d.comb += [
                unit.source.eq(bank_source | pool_source),
                unit.channel.eq(self.channels[lane]),
                unit.residual.eq(residual.word_select(lane, 8)),
                unit.control.eq(control),
                self.output[lane].eq(unit.output),
            ]
            if config.binary_rows:
                m.d.comb += [
                    packer.signs[lane].eq(~high_negative & ~(unit.negative & low_negative)),
                    unit.merge.eq(packer.beat.word_select(lane, 8)),
                ]
        return m

    def _packer(self, m: Module, valid: list[Value], ends: Value,
                early: Mapping[str, Value]) -> tuple[SignPacker, Signal, Signal]:
        """The packer, fed in the cycle of the last clip, and the signs of that cycle's limits."""
        m.submodules.packer = packer = SignPacker(self.config)
        row_end = [ends]
        for cycle in range(1, self.ADD_LATENCY):
            delayed = Signal(name=f"row_end{cycle}")
            m.d.sync += delayed.eq(row_end[-1])
            row_end.append(delayed)
        first, second = self.LATENCY - 1, self.ADD_LATENCY - 1
        m.d.comb += [
            packer.valid.eq(self.chain.signs & Mux(self.chain.adds, valid[second], valid[first])),
            packer.row_end.eq(Mux(self.chain.adds, row_end[second], row_end[first])),
        ]
        negative = [Signal(name=f"{limit}_negative") for limit in ("low", "high")]
        m.d.sync += [sign.eq(early[limit][-1]) for sign, limit in zip(negative, ("low", "high"), strict=True)]
        return packer, negative[0], negative[1]
