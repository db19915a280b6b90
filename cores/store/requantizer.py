"""From accumulators to activations: the arithmetic half of the store engine."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..arch.numerics import MIN_SHIFT, POOL_WIDTH
from ..config import NpuConfig
from ..lib.bits import select
from ..lib.component import Component, record
from ..timing.store import RequantizerTiming
from .chain import Chain
from .parts import beats_of, second_stage_of, words_of
from .pixel_words import PixelWords
from .requantizer_lane import ChannelLayout, LaneControl, RequantizerLane

__all__ = ["PixelIssue", "Requantizer", "SelectShape"]


def SelectShape(config: NpuConfig) -> range:  # noqa: N802 - a shape
    """Places of a block's pixel in an accumulator word; at least a bit, as Verilog has no vectors without any."""
    return range(max(2, config.word_places))


def PixelIssue(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A pixel that sets out this cycle if ``valid``.

    ``select`` is ``pixel * oc_groups + group`` of the accumulator word; ``pooled`` takes the pool unit's beat instead.
    ``load`` takes the channel parameters over for this pixel and those after it; ``release``: that was the last time.

    By name, what the machine's words and beats of results have beside that: `PixelWords`, `ResultBeats`.
    """
    return data.StructLayout({"valid": 1, "pooled": 1, "select": SelectShape(config), "load": 1, "release": 1,
                              **beats_of(config).ISSUE, **words_of(config).ISSUE})


class Requantizer(RequantizerTiming, Component):
    """Requantise a pixel of a block a cycle; with a second stage (add, multiply, or scale) one in `ADD_CYCLES`.

    Latency: `LATENCY` cycles, `ADD_LATENCY` with a second stage. Cycle 0 is that of ``issue``; ``pooled`` is taken
    then, ``accumulators`` in cycle 1, ``residual`` in cycle `RESIDUAL`. All after the reading and selection of a word
    is a cycle later in two kinds of machines: with ``winograd``, where a source is a sum of words, the last of them its
    pixel's own; and without ``hard_block_registers``, where a word has a register in front of the selection.

    With a second stage every pixel needs ``load``, and pixels set out multiples of `ADD_CYCLES` apart. With
    STORE_LEAKY, which has no residual, none sets out `SECOND` cycles after another. ``chain`` stands still while pixels
    are under way. ``released`` follows an issue's ``release`` once ``channels`` may change. Golden models:
    ``sim.golden.requantize``, ``sim.store_operations.residual_add``, ``sim.store_operations.leaky``,
    ``sim.store_operations.product``.

    What of that is different in machines with optional units is in `PixelWords`, `SecondStage` and `ResultBeats`.
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
            **beats_of(config).PORTS,
        })

    @property
    def lanes(self) -> int:
        """Channels that go through at once."""
        return self.config.ic_lanes // self.config.store_parts

    def _arrive(self, m: Module) -> tuple[Any, Any, Value]:
        """``issue``, ``pooled`` and ``residual`` in the cycle from which all are counted."""
        arriving = self.issue, self.pooled, self.residual
        if self.late(self.config):
            late = []
            for signal, name in zip(arriving, ("issue", "pooled", "residual"), strict=True):
                late.append(Signal.like(signal, name=f"late_{name}"))
                m.d.sync += late[-1].eq(signal)
            return late[0], late[1], late[2]
        return arriving

    def _follow(self, m: Module, issue: Any) -> tuple[list[Value], list[Value], list[Value]]:
        """``valid``, ``load``, ``release``: of the pixel that set out so many cycles ago."""
        valid: list[Value] = [issue.valid]
        load, release = [issue.valid & issue.load], [issue.valid & issue.release]
        for stages, length, name in ((valid, self.ADD_LATENCY, "valid"), (load, 4, "load"),
                                     (release, self.RELEASE, "release")):
            for cycle in range(1, length + 1):
                delayed = Signal(name=f"{name}{cycle}")
                # Without add a pixel has left here; what follows may switch to add.
                m.d.sync += delayed.eq(stages[-1] & self.chain.adds if cycle == self.LATENCY + 1 else stages[-1])
                stages.append(delayed)
        return valid, load, release

    def _begin_sources(self, m: Module, words: PixelWords, issue: Any,
                       pooled_source: Any) -> tuple[Value, Any, Callable[[int], Value]]:
        """Whether a pixel's source is the pool unit's beat, that beat, and what is chosen of the words for a lane.

        Each source is zero when it is not the one, so that the lanes only OR them.
        """
        config = self.config
        from_bank, from_pool, place = Signal(), Signal(), Signal.like(self.issue.select, name="place")
        pooled = Signal.like(pooled_source, name="pooled_beat", reset_less=True)
        accumulators, selected, registers = self.accumulators, self.issue.select, []
        if not config.hard_block_registers:
            accumulators = Signal.like(self.accumulators, name="accumulators_read", reset_less=True)
            selected, registers = issue.select, [accumulators.eq(self.accumulators)]
        m.d.sync += [
            from_bank.eq(issue.valid & ~issue.pooled),
            from_pool.eq(issue.valid & issue.pooled),
            place.eq(selected),
            pooled.eq(pooled_source),
            *registers,
        ]
        words.begin_sources(m, issue, from_bank)
        of_part = self._place_of_part(place)

        def choose(lane: int) -> Value:
            return select(of_part, [accumulators[base + lane] for base in range(0, config.acc_lanes, self.lanes)])

        return from_pool, pooled, choose

    def _place_of_part(self, place: Value) -> Value:
        """Which of the word's ``lanes`` are chosen, of the pixel at a ``place``."""
        return place

    def _channels(self, m: Module) -> Any:
        """Parameters of each lane."""
        return self.channels

    def elaborate(self, platform):
        m = Module()
        config = self.config
        chain = self.chain
        words, stage, results = words_of(config), second_stage_of(config, chain), beats_of(config)
        first, second, add = chain.requant, chain.second, chain.adds
        issue, pooled_source, residual = self._arrive(m)
        valid, load, release = self._follow(m, issue)
        in_second = [Signal(name=f"second{cycle}") for cycle in range(self.ADD_LATENCY + 1)]
        m.d.comb += [signal.eq(stage & add) for signal, stage in zip(in_second, valid, strict=True)]
        a = self.SECOND     # cycles that the first stage's result is after a pixel

        control = record(LaneControl)
        m.d.comb += [
            control.load_bias.eq(load[1]),
            control.clear_bias.eq(add),
            control.load_factor.eq(load[2]),
            control.take_factor.eq(add),
            control.residual.eq(stage.other_turn(2, valid) & ~chain.leaky),
            control.load_shift.eq(load[4]),
            control.take_shift.eq(add),
            control.shift.eq(second.add.shift - MIN_SHIFT),
            self.released.eq(release[self.RELEASE]),
        ]
        minus_b = Signal(signed(len(second.add.multiplier_b) + 1), reset_less=True)
        m.d.sync += minus_b.eq(-second.add.multiplier_b)
        output_comes = Mux(add, valid[self.ADD_LATENCY - 1], valid[self.LATENCY - 1])
        # Registers in front of what has many loads: a stage ahead of the cycle in which the lanes see it.
        own, other = in_second[1 + a], stage.other_turn(1, in_second) & ~chain.leaky
        of_first, of_other = stage.factors(own, other)
        factor = Mux(of_first, second.add.multiplier_a, Mux(of_other, minus_b, 0))
        early = {
            "factor": factor,
            "negative_factor": Mux(own & chain.leaky, second.leaky.negative, factor),
            "subtrahend": Mux(stage.other_turn(3, in_second) & ~chain.leaky, second.add.constant, 0),
            "accumulate": stage.accumulates(in_second[3 + a] & ~chain.leaky),
            "zero_point": Mux(in_second[7 + a], second.add.zero_point, first.zero_point),
            "low": Mux(in_second[8 + a], second.add.low, first.low),
            "high": Mux(in_second[8 + a], second.add.high, first.high),
        }
        results.limit(m, self, valid, issue, early)
        for field, value in early.items():
            register = Signal.like(control[field], name=f"control_{field}", reset_less=True)
            m.d.sync += register.eq(value)
            m.d.comb += control[field].eq(register)

        m.d.sync += self.output_valid.eq(results.comes(m, self, output_comes))

        # The residual waits for the first stage's result.
        residuals = {self.RESIDUAL: residual}
        for cycle in range(self.RESIDUAL + 1, 2 + self.SECOND):
            residuals[cycle] = Signal(len(residual), name=f"residual{cycle}", reset_less=True)
            m.d.sync += residuals[cycle].eq(residuals[cycle - 1])
        residual = stage.residual(residuals)

        # The total of a residual's turn comes in the register of the pool unit's.
        from_pool, pooled, choose = self._begin_sources(m, words, issue, pooled_source)
        stage.begin_sources(m, in_second)
        channels = self._channels(m)
        for lane in range(self.lanes):
            chosen = choose(lane)
            pool_source = Signal(signed(POOL_WIDTH), name=f"pool{lane}", reset_less=True)
            unit = RequantizerLane(acc_width=config.acc_width, halves=not config.hard_block_registers,
                                   packs=results.PACKS, multiplies=stage.MULTIPLIES)
            m.d.sync += pool_source.eq(stage.source(Mux(from_pool, pooled[lane], 0), unit))
            bank_source = words.source(m, lane, chosen)
            m.submodules[f"lane{lane}"] = unit
            m.d.comb += [
                unit.source.eq(bank_source | pool_source),
                unit.channel.eq(channels[lane]),
                unit.residual.eq(residual.word_select(lane, 8)),
                unit.control.eq(control),
                *results.give(m, self, lane, unit),
            ]
            results.connect_lane(m, lane, unit)
        return m
